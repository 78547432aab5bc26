"""The thread pool; names and random bytes by it.

A blocking call needs a thread.
"""
