cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from whorl.core cimport limits, states
from whorl.core.callback cimport Callback, Runnable, current_thread, is_foreign, new_callback, new_guarded_callback
from whorl.core.figures cimport Figures, has_histograms, note, note_away
from whorl.core.kernel.kernel cimport Kernel, clock_is_patched, read_ticks
from whorl.core.lists cimport append, append_at
from whorl.core.loop.held_writes cimport HeldWrites
from whorl.core.loop.lifecycle cimport LoopLifecycle
from whorl.core.loop.state cimport begin_sleep, end_sleep
from whorl.core.loop.wakeup cimport run_signal_handlers
from whorl.core.pollers.contract cimport IOHandle
from whorl.core.pollers.skips cimport PollSkips
from whorl.core.recording.loop_recorder cimport LoopRecorder, end_turn
from whorl.core.recording.steps cimport may_step, stepped_by
from whorl.core.threads cimport seen_flag
from whorl.core.timers.heap cimport TimerHeap
from whorl.core.timers.timed_callback cimport TimedCallback, new_timer, new_timer_after

cdef extern from "whorl/core/loop/current_task.h":
    ctypedef struct Current "whorl_current":
        pass
    int take_hash "whorl_take_hash"(object type, Current *(*finder)(object) noexcept) except -1
    void know_current_tasks "whorl_know_current_tasks"(dict tasks) noexcept


cdef class Loop(LoopLifecycle):
    cdef Current _current_task[1]
    cdef bint _is_driven
    cdef bint _is_machine_run
    cdef seen_flag _is_turning

    cdef object _set_up_loop(self, object poller, object kernel, object host)
    cdef object _call_soon_with(self, object callback, tuple args, object context)
    @cython.locals(entry=Callback, recorder=LoopRecorder)
    cdef object _call_step_soon(self, object callback, tuple args, object context)
    cdef object _call_at_with(self, object when, object callback, tuple args, object context)
    cdef object _call_later_with(self, object delay, object callback, tuple args, object context)
    cdef object _post_with(self, object callback, tuple args, object context)
    @cython.locals(can_sleep=bint, may_sleep=bint, _=int)
    cdef object _machine_turn(self, int mode)
    @cython.locals(recorder=LoopRecorder, now=int64_t)
    cdef object _note_machine_turn(self, bint begins)
    cdef int64_t _machine_timeout(self) except -2
    cpdef object _run_turns(self)
    cdef object _turn(self)
    cpdef object _step(self, bint may_sleep)
    cpdef bint _may_nest(self) except -1
    @cython.locals(
        held=HeldWrites, fresh=list, rest=list, batch=list, index=Py_ssize_t, stops=bint, recorder=LoopRecorder
    )
    cpdef object _begin_nested(self, list states, bint keeps_stop)
    @cython.locals(held=HeldWrites, handle=IOHandle, recorder=LoopRecorder)
    cpdef object _end_nested(self, list states, list put_off)
    @cython.locals(timeout_ns=int64_t)
    cpdef int64_t _prepare_external_poll(self) except? -2
    @cython.locals(found=Py_ssize_t, idle_before=int64_t)
    cdef object _poll(self, int64_t timeout_ns, list into)
    @cython.locals(found=Py_ssize_t, now=int64_t)
    cdef Py_ssize_t _poll_now(self, list into) except -1
    @cython.locals(began=int64_t, now=int64_t, found=Py_ssize_t, recorder=LoopRecorder)
    cdef Py_ssize_t _sleep(self, int64_t timeout_ns, list into) except -1
    @cython.locals(recorder=LoopRecorder)
    cdef object _run_interrupting_handlers(self)
    @cython.locals(since=int64_t, is_single=bint, skips=PollSkips, timers=TimerHeap)
    cdef bint _skip_poll(self) except -1
    cdef int _note_away(self, int64_t until) except -1
    cdef object _poll_and_collect(self)
    cdef int64_t _turn_timeout(self) except -2
    cdef bint _alive(self) except -1


cdef class Moved(Runnable):
    cdef Loop _loop

    cdef object _execute(self)


cdef inline int64_t ticks_of(Loop loop) except? -1:
    # The usual kernel is asked without a call: each turn that skips its poll asks.
    return read_ticks() if type(loop._kernel) is Kernel else loop._kernel.ticks()


cdef inline object call_soon_of(object loop, object when, object callback, tuple args, object context):
    cdef Callback entry
    if (<Loop>loop)._closed or (<Loop>loop)._debug or (<Loop>loop)._posted or is_foreign(<Loop>loop):
        if (
            (<Loop>loop)._closed or (<Loop>loop)._debug or (<Loop>loop)._posted == states.SOMETHING
            or is_foreign(<Loop>loop)
        ):
            return (<Loop>loop)._call_soon_with(callback, args, context)
        # A loop that is recorded is told of the steps of tasks only, which functions in Python never are.
        if may_step(callback):
            return (<Loop>loop)._call_step_soon(callback, args, context)
    if (<Loop>loop)._ready_queue is None:
        raise AttributeError("the loop is not initialized")
    entry = new_callback(<Loop>loop, callback, args, context)
    append_at(<PyObject *>(<Loop>loop)._ready_queue, entry)
    return entry


cdef inline object post_of(object loop, object when, object callback, tuple args, object context):
    return (<Loop>loop)._post_with(callback, args, context)


cdef inline object call_at_of(object loop, object when, object callback, tuple args, object context):
    return (<Loop>loop)._call_at_with(when, callback, args, context)


cdef inline object call_later_of(object loop, object delay, object callback, tuple args, object context):
    return (<Loop>loop)._call_later_with(delay, callback, args, context)


cdef extern from "whorl/core/loop/loop.h":
    ctypedef object (*scheduler)(object, object, object, tuple, object)
    void know_loops "whorl_know_loops"(object type) noexcept
    void take_call_soon "whorl_take_call_soon"(object method, scheduler schedule) noexcept
    void take_post "whorl_take_post"(object method, scheduler schedule) noexcept
    void take_call_at "whorl_take_call_at"(object method, scheduler schedule) noexcept
    void take_call_later "whorl_take_call_later"(object method, scheduler schedule) noexcept


cdef inline Current *current_of(object loop) noexcept:
    return (<Loop>loop)._current_task


cpdef object keep_current_tasks(dict tasks)


cdef inline object take_arguments(object type, dict methods):
    know_loops(type)
    take_hash(type, current_of)
    take_call_soon(methods["call_soon"], call_soon_of)
    take_post(methods["call_soon_threadsafe"], post_of)
    take_call_at(methods["call_at"], call_at_of)
    take_call_later(methods["call_later"], call_later_of)
