"""The contract of a poller; epoll, the standard selectors.

There is one small file for each kernel interface. The room is compiled, since each event passes through it.
"""
