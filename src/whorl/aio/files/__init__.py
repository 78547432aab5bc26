"""Open files for coroutines, over Python's io classes; `whorl.fs`.

A file blocks, so each call is a request of the thread pool.
"""
