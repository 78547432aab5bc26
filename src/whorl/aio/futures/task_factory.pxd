cpdef object task_of_factory(object loop, object coro, dict options)
