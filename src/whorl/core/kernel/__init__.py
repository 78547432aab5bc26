"""Every system call and the time, as methods of one object.

A test, a simulation or a fault takes its place. Compiled, a call makes no Python object.
"""
