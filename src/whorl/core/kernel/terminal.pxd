from whorl.core.kernel.fd_passing cimport FdPassingCalls


cdef class TerminalCalls(FdPassingCalls):
    pass
