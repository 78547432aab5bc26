"""The contract of a poller; epoll, the standard selectors, io_uring.

One small file for each kernel interface. Compiled, as each event passes through.
"""
