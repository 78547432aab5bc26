from whorl.aio.running cimport Running as RunningLoop


cdef inline bint makes_tasks_plainly(RunningLoop loop) except -1:
    # Nobody has a say in it, and nothing is to be written down.
    return not loop._closed and loop._task_factory is None and not loop._debug


cpdef object task_of_factory(object loop, object coro, dict options)
