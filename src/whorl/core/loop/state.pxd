cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from whorl.core cimport limits, states
from whorl.core.callback cimport AbstractLoop, Callback, Runnable, current_thread, is_foreign
from whorl.core.figures cimport Figures, add_ones, are_made
from whorl.core.handle cimport Handle
from whorl.core.kernel.kernel cimport Kernel
from whorl.core.recording cimport layout
from whorl.core.recording.loop_recorder cimport LoopRecorder
from whorl.core.threads cimport (
    HAS_GIL, Mutex, barrier, lock, seen_number, seen_size, shared_flag, shared_int, shared_thread, unlock
)
from whorl.core.timers.heap cimport TimerHeap
from whorl.core.timers.timed_callback cimport TimedCallback, deadline_of

cdef extern from "Python.h":
    unsigned long thread_number "PyThread_get_thread_ident"() noexcept
    Py_ssize_t size_of "PyList_GET_SIZE"(PyObject *entries) noexcept


cdef class LoopState(AbstractLoop):
    cdef readonly Kernel _kernel
    cdef readonly object _host
    cdef object _probe
    cdef readonly LoopRecorder _recorder
    cdef bint _observed
    cdef public shared_flag _stopping  # a thread that sets it ends the sleep afterwards
    cdef public shared_flag _closed  # other threads ask; what they post too late is never run
    cdef shared_thread _thread  # that runs the loop, or 0; other threads only compare it
    cdef object __weakref__
    cdef readonly list _ready_queue
    cdef list _ready_swap
    cdef list _pending
    cdef list _pending_swap
    cdef list _polled
    cdef list _inbox
    cdef list _inbox_swap
    cdef Mutex _posting[1]
    cdef list _kept_for_readers
    cdef shared_int _posted  # set after the entry was put, cleared before the inbox is taken
    cdef readonly dict _async_handles
    cdef public int64_t _asyncs_made
    cdef Runnable _sent_async  # which only the holder of `_posting` touches
    cdef shared_flag _has_sent_async  # changed with it; a sender ends the sleep afterwards
    cdef public bint _guards_posts
    cdef shared_thread _last_run_thread  # changed under `_posting`; others only ask whether it is theirs
    cdef shared_flag _may_sleep  # `_end_sleep` says why no sleeper is missed
    cdef shared_flag _woken  # set late, it is cleared by `begin_sleep`
    cdef readonly dict _shared
    cdef readonly list _idle_handles
    cdef readonly list _prepare_handles
    cdef readonly list _check_handles
    cdef list _closing_handles
    cdef dict _handles
    cdef seen_size _active_handles
    cdef seen_size _active_requests
    cdef public object _clock_function
    cdef readonly TimerHeap _timer_queue
    cdef seen_number _now_ns
    cdef public bint _time_replaced
    cdef public bint _follows_patch
    cdef seen_number _turns
    cdef seen_number _events
    cdef seen_number _callbacks
    cdef seen_number _callbacks_alone
    cdef seen_number _events_waiting
    cdef seen_number _idle_ns
    cdef seen_number _sleep_began
    cdef seen_number _ran_ns
    cdef seen_number _run_began
    cdef int64_t _poll_ended
    cdef int64_t _previous_poll_ended
    cdef int _until_sample

    cdef object _set_up(self, object kernel, object host)
    cpdef object _check_closed(self)
    cpdef object _check_thread(self)
    cdef object _end_sleep(self)
    cdef object _wake(self)
    @cython.locals(opened=Handle)
    cdef object _handle_opened(self, Runnable handle)
    cdef object _handle_closing(self, Runnable handle)
    @cython.locals(recorder=LoopRecorder)
    cdef object _internal_handle_opened(self, Handle handle)
    @cython.locals(closed=Handle)
    cdef object _handle_closed(self, Runnable handle)
    cpdef object _mark_internal(self, Handle handle)
    cdef object _publish(self, LoopRecorder recorder, int64_t now)
    cdef object _count_active(self, Py_ssize_t change)
    cdef object _count_requests(self, Py_ssize_t change)
    cdef int64_t _clock(self) except? -1
    cdef object _schedule(self, TimedCallback timer)
    cdef object _timer_cancelled(self, Runnable timer)
    cpdef object _post_from_any_thread(self, Runnable entry)
    cdef bint _is_foreign(self) noexcept
    @cython.locals(collected=Py_ssize_t, limit=int64_t, since=int64_t, timer=TimedCallback, recorder=LoopRecorder, now=int64_t)
    cdef object _collect_timers(self, list into)
    @cython.locals(deadline=int64_t)
    cdef int64_t _until_next_timer(self, int64_t now_ns) except -2

    # The methods that faces replace.
    cpdef object _clock_was_patched(self)
    cpdef object _callback_failed(self, Runnable entry, object error)
    cpdef object _callback_ran(self, Runnable entry, int64_t took_ns)
    cpdef object _signal_arrived(self, int number)
    cpdef object _check_callback(self, object callback, str method)
    cpdef object _note_origin(self, Callback callback)


cdef inline Py_ssize_t entries_waiting(LoopState loop) noexcept:
    # No other code runs meanwhile, so no reference of the lists is taken. Without the GIL, they change places
    # under the lock.
    cdef Py_ssize_t count
    lock(loop._posting)
    count = (
        size_of(<PyObject *>loop._ready_queue) + size_of(<PyObject *>loop._pending) + size_of(<PyObject *>loop._inbox)
    )
    unlock(loop._posting)
    return count


cdef inline int begin_sleep(LoopState loop) noexcept:
    # Without the GIL, a thread that read both flags in the sleep before may set the second one at any later time.
    loop._woken = False
    loop._may_sleep = True
    barrier()
    return 0


cdef inline int end_sleep(LoopState loop) noexcept:
    loop._may_sleep = loop._woken = False
    barrier()
    return 0


cdef class Arrival(Runnable):
    cdef LoopState _loop
    cdef TimedCallback _timer

    cdef object _execute(self)


cdef class Withdrawal(Arrival):
    cdef object _execute(self)
