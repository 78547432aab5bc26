from whorl.core.kernel.fd_passing cimport PassingCalls


cdef class TerminalCalls(PassingCalls):
    pass
