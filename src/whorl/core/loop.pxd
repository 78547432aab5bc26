cimport cython
from libc.stdint cimport int64_t

from whorl.core.callback cimport Callback, Owner, Runnable, current_thread, new_callback, new_guarded_callback, recycle
from whorl.core.handle cimport Completion, Handle, LateCompletion
from whorl.core.kernel cimport Kernel
from whorl.core.poller cimport Poller
from whorl.core.timer cimport TimedCallback, deadline_of, new_timer
from whorl.core.timer_heap cimport TimerHeap
from whorl.core.wakeup cimport SignalPipe, Wakeup

cdef extern from "Python.h":
    unsigned long thread_number "PyThread_get_thread_ident"() noexcept

cdef int DEFAULT
cdef int ONCE
cdef int64_t NEVER_NS
cdef int64_t LONGEST_POLL_NS
cdef int PENDING_ROUNDS
cdef int QUIET_POLLS
cdef int TURNS_WITHOUT_POLL
cdef int64_t LONGEST_WITHOUT_POLL_NS


cdef class Loop(Owner):
    cdef readonly Kernel _kernel
    cdef readonly Poller _poller
    cdef readonly object _host
    cdef object _probe
    cdef Wakeup _wakeup
    cdef SignalPipe _signals
    cdef int _signal_handles
    cdef bint _arms_signals
    cdef readonly dict _shared
    cdef readonly list _ready
    cdef list _spare
    cdef list _pending
    cdef list _polled
    cdef list _arrivals
    cdef list _emptied
    cdef bint _posted
    cdef readonly dict _async_handles
    cdef public int64_t _asyncs_made
    cdef Runnable _sent_async
    cdef readonly TimerHeap _timer_queue
    cdef readonly list _idle_handles
    cdef readonly list _prepare_handles
    cdef readonly list _check_handles
    cdef readonly int64_t _passes
    cdef list _closing_handles
    cdef dict _handles
    cdef list _holding
    cdef Py_ssize_t _active_handles
    cdef Py_ssize_t _active_requests
    cdef int64_t _now_ns
    cdef int64_t _polled_at
    cdef int _skipped
    cdef public bint _time_replaced
    cdef public bint _guards_posts
    cdef public bint _stopping
    cdef bint _is_driven
    cdef bint _is_turning
    cdef public bint _closed
    cdef public object _thread_id
    cdef unsigned long _home_thread
    cdef object _process_id
    cdef bint _may_sleep
    cdef bint _woken
    cdef readonly object _watched_entry
    cdef int64_t _turns
    cdef int64_t _events
    cdef int64_t _callbacks
    cdef int64_t _events_waiting
    cdef int64_t _idle_ns
    cdef int64_t _sleep_began
    cdef int64_t _ran_ns
    cdef int64_t _run_began
    cdef object __weakref__

    # What faces replace.
    cpdef object _callback_failed(self, Runnable entry, object error)
    cpdef object _callback_ran(self, Runnable entry, int64_t took_ns)
    cpdef object _signal_arrived(self, int number)
    cpdef object _check_callback(self, object callback, str method)
    cpdef object _note_origin(self, Callback callback)

    # Turns.
    cpdef object _run_turns(self)
    cdef object _turn(self)
    @cython.locals(before=int64_t, slept=int64_t, found=Py_ssize_t, _=Py_ssize_t)
    cdef object _poll(self, int64_t timeout_ns, list into)
    @cython.locals(since=int64_t, timers=TimerHeap)
    cdef bint _skip_poll(self) except -1
    @cython.locals(closing=list, handle=Handle)
    cdef object _run_closing(self)
    cdef object _run_pending(self)
    cdef object _collect_pending(self, list into)
    @cython.locals(late=list, index=Py_ssize_t, sent=Runnable)
    cdef object _take_arrivals(self, list into)
    @cython.locals(collected=Py_ssize_t, timer=TimedCallback)
    cdef object _collect_timers(self, list into)
    @cython.locals(due=list)
    cdef object _run_timers(self)
    @cython.locals(batch=list)
    cdef object _run_ready(self)
    @cython.locals(
        size=Py_ssize_t, done=Py_ssize_t, index=Py_ssize_t, before=int64_t, watched=bint, entry=Runnable
    )
    cdef object _run_batch(self, list batch, list queue)
    cdef bint _hold(self, Runnable handle) except -1
    @cython.locals(handle=Handle)
    cpdef object _send_held(self)
    @cython.locals(began=int64_t, took=int64_t)
    cdef object _run_watched(self, Runnable entry)
    cdef int64_t _turn_timeout(self) except -2
    @cython.locals(deadline=int64_t)
    cdef int64_t _until_next_timer(self, int64_t now_ns) except -2
    cdef int64_t _clock(self) except? -1
    cdef bint _alive(self) except -1

    # What handles and callbacks ask for.
    cdef object _timer_cancelled(self, Runnable timer)
    cdef object _count_active(self, Py_ssize_t change)
    cdef object _count_requests(self, Py_ssize_t change)
    cdef object _handle_opened(self, Runnable handle)
    cdef object _handle_closing(self, Runnable handle)
    cdef object _handle_closed(self, Runnable handle)
    cdef object _enqueue(self, Runnable entry)
    cdef object _feed(self, Runnable entry)
    cdef object _unfeed(self, Runnable entry)
    cdef object _schedule(self, TimedCallback timer)
    cdef object _post(self, Runnable entry)
    cpdef object _arrive(self, Runnable entry)
    cdef object _async_sent(self, Runnable handle)
    cdef object _end_sleep(self)
    cpdef object _hide(self, Handle handle)
    cpdef object _check_closed(self)
    cpdef object _check_thread(self)
    cpdef object _begin_run(self)
    cpdef object _end_run(self)


cdef inline object move_arrivals(Loop loop, list into):
    # One step for other threads, which wait for the GIL, and for signal handlers: nothing here runs Python.
    cdef list arrived = loop._arrivals
    loop._arrivals = loop._emptied
    loop._emptied = arrived
    into.extend(arrived)
    arrived.clear()
