"""Every system call and the time, as methods of one object.

A test, a simulation or an injected fault can replace it. Compiled, a call makes no Python object.
"""
