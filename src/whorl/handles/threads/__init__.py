"""The thread pool; names and random bytes by it.

A call that blocks needs a thread.
"""
