from whorl.aio.loop.lifecycle cimport Running as RunningLoop
from whorl.aio.futures.task_factory cimport task_of_factory

cdef extern from "whorl/aio/loop/tasks.h":
    object future_of "whorl_future_of"(object cls, tuple none)
    object task_of "whorl_task_of"(object cls, object coroutine)

cdef object _FUTURE
cdef object _TASK
cdef dict _NAMES
cdef dict _NAMES_OF_FUTURES
cdef object _running_loop
cdef tuple _NONE


cdef inline bint are_default_options(dict options) except -1:
    # The name that asyncio's functions give a task that has no name, before Python 3.14.
    return not options or (len(options) == 1 and options.get("name", options) is None)


cdef inline bint can_make_stock_task(RunningLoop loop) except -1:
    # No other code takes part in it, and nothing is to be recorded.
    return not loop._closed and loop._task_factory is None and not loop._debug


cdef inline object plain_task(object loop, object coroutine):
    # None if there is more to do than to make one of CPython's tasks for the running loop.
    if (
        isinstance(loop, RunningLoop)
        and can_make_stock_task(<RunningLoop>loop)
        and _NAMES["Task"] is _TASK
        and _running_loop() is loop
    ):
        return task_of(_TASK, coroutine)
    return None


cdef extern from "whorl/aio/loop/tasks.h":
    void take_create_task "whorl_take_create_task"(object create_task, object (*maker)(object, object)) noexcept


cdef inline object take_arguments(object create_task):
    take_create_task(create_task, plain_task)
