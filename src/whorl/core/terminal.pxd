from whorl.core.passing cimport PassingCalls


cdef class TerminalCalls(PassingCalls):
    pass
