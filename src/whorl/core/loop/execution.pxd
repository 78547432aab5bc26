cimport cython
from libc.stdint cimport int64_t
from posix.time cimport nanosleep, timespec

from whorl.core cimport limits, states
from whorl.core.callback cimport (
    Callback, GuardedCallback, Runnable, call_with_one, run_catching, fetch, is_held_alone, recycle_guarded,
    reraise_pending, thread_begins
)
from whorl.core.figures cimport has_histograms, note
from whorl.core.loop.held_writes cimport HeldWrites
from whorl.core.handle cimport Completion, Handle, LateCompletion
from whorl.core.lists cimport empty, only_callback, taken
from whorl.core.loop.state cimport LoopState, thread_number
from whorl.core.recording cimport layout
from whorl.core.recording.loop_recorder cimport LoopRecorder, begin_batch, begins_alike, end_batch, end_call, end_turn
from whorl.core.recording.slot cimport time_of
from whorl.core.recording.steps cimport may_be_step
from whorl.core.threads cimport HAS_GIL, lock, unlock

cdef extern from "whorl/core/loop/execution.h":
    int runs_here "whorl_runs_here"


cpdef object count_runs(int change)


cdef inline int yield_to_loops() noexcept:
    # Sleep for the shortest time, without the GIL: to give it up alone lets this thread take it again at once.
    # A thread that runs a loop itself keeps it: that loop would wait.
    cdef timespec moment
    if HAS_GIL and runs_here == 0:
        moment.tv_sec = 0
        moment.tv_nsec = 1
        with nogil:
            nanosleep(&moment, NULL)
    return 0


cdef class LoopExecution(LoopState):
    cdef readonly int64_t _passes
    cdef public object _current_entry
    cdef public object _run_hook
    cdef readonly HeldWrites _held
    cdef int64_t _callback_began

    cdef object _set_up(self, object kernel, object host)
    cdef object _enqueue(self, Runnable entry)
    cdef object _queue_pending(self, Runnable entry)
    cdef object _unqueue_pending(self, Runnable entry)
    cdef object _collect_pending(self, list into)
    @cython.locals(size=Py_ssize_t)
    cdef object _post(self, Runnable entry)
    cpdef object _post_from_any_thread(self, Runnable entry)
    cdef object _async_sent(self, Runnable handle)
    @cython.locals(late=list, index=Py_ssize_t, sent=Runnable)
    cdef object _drain_inbox(self, list into)
    @cython.locals(recorder=LoopRecorder)
    cdef object _take_posted(self, Runnable entry)
    @cython.locals(batch=list, entry=Callback, recorder=LoopRecorder)
    cdef object _run_ready(self)
    @cython.locals(recorder=LoopRecorder)
    cdef object _note_closed(self, object handle)
    @cython.locals(batch=list)
    cdef object _run_pending(self)
    @cython.locals(due=list)
    cdef object _run_timers(self)
    @cython.locals(closing=list, handle=Handle)
    cdef object _run_closing(self)
    @cython.locals(size=Py_ssize_t, done=Py_ssize_t, index=Py_ssize_t, entry=Runnable, held=HeldWrites)
    cdef object _run_batch(self, list batch, list queue)
    @cython.locals(
        size=Py_ssize_t, done=Py_ssize_t, index=Py_ssize_t, entry=Runnable, held=HeldWrites,
        observer=BatchObserver
    )
    cdef object _run_observed_batch(self, list batch, list queue)
    cdef bint _observes_batch(self) except -1
    cdef int _count_batch(self, Py_ssize_t size) except -1
    cdef object _batch_ended(self, Py_ssize_t rest)
    @cython.locals(recorder=LoopRecorder)
    cdef object _run_step(self, object context, object called, object argument)
    @cython.locals(held=HeldWrites)
    cdef object _report_callback_error(self, Runnable entry, object error)
    @cython.locals(began=int64_t, took=int64_t)
    cdef object _run_instrumented(self, Runnable entry)
    cpdef object _run_entry(self, Runnable entry)


@cython.final
@cython.freelist(4)
cdef class BatchObserver:
    cdef LoopExecution _loop
    cdef LoopRecorder _recorder
    cdef bint is_instrumented
    cdef bint _is_timed

    @cython.locals(recorder=LoopRecorder)
    cdef int batch_begins(self, LoopExecution loop) except -1
    @cython.locals(recorder=LoopRecorder)
    cdef int callback_begins(self, Runnable entry, Py_ssize_t behind) except -1
    cdef int callback_ended(self, Runnable entry) except -1
    cdef int callback_failed(self, Runnable entry) except -1
    cdef int error_reported(self) except -1
    cdef int batch_ended(self) except -1
    @cython.locals(now=int64_t)
    cdef int _note_callback(self) except -1


cdef int execute(Runnable entry) except -1


cdef inline int begin_batch_of(LoopExecution loop, LoopRecorder recorder) except -1:
    cdef int64_t now = begin_batch(recorder, loop._poll_ended)
    if now - recorder._published_ns >= layout.PUBLISHED_NS:
        loop._publish(recorder, now)
    return 0


cdef inline int end_turn_of(LoopExecution loop, LoopRecorder recorder) except -1:
    if not recorder._in_call and not recorder._in_machine_turn:
        end_turn(recorder, recorder._last_ns, loop._callbacks + loop._callbacks_alone)
    return 0


cdef object report_recorded_error(LoopExecution loop, LoopRecorder recorder, Callback entry)
@cython.locals(held=HeldWrites)
cdef object run_alone_recorded(LoopExecution loop, LoopRecorder recorder, Callback entry)
@cython.locals(held=HeldWrites)
cdef object run_alone(LoopExecution loop, Callback entry)
cdef object report_pending_error(LoopExecution loop, Callback entry)


cdef inline object swap_inbox(LoopExecution loop, list into):
    # Nothing here runs Python. So it is one step for other threads, which wait for the GIL, or else for the lock,
    # and for signal handlers. Afterwards no other thread knows the list.
    cdef list arrived = loop._inbox
    lock(loop._posting)
    loop._inbox = loop._inbox_swap
    loop._inbox_swap = arrived
    unlock(loop._posting)
    into.extend(arrived)
    arrived.clear()


cdef inline int swap_ready(LoopExecution loop, list batch) noexcept:
    # Other threads ask how long the queue is.
    lock(loop._posting)
    loop._ready_queue = loop._ready_swap
    loop._ready_swap = batch
    unlock(loop._posting)
    return 0


cdef inline int swap_pending(LoopExecution loop, list batch) noexcept:
    lock(loop._posting)
    loop._pending = loop._pending_swap
    loop._pending_swap = batch
    unlock(loop._posting)
    return 0


cdef inline Py_ssize_t put_in_inbox(LoopExecution loop, Runnable entry) except -1:
    # Return the number of entries there.
    cdef Py_ssize_t size
    lock(loop._posting)
    try:
        loop._inbox.append(entry)
        size = len(loop._inbox)
    finally:
        unlock(loop._posting)
    return size


cdef inline bint put_if_at_home(LoopExecution loop, Runnable entry) except -1:
    # Return whether the loop last ran in this thread. The lock keeps another one from beginning to run it meanwhile.
    cdef bint is_at_home
    lock(loop._posting)
    try:
        is_at_home = thread_number() == loop._last_run_thread
        if is_at_home:
            loop._ready_queue.append(entry)
    finally:
        unlock(loop._posting)
    return is_at_home


cdef inline int begin_at_home(LoopExecution loop) noexcept:
    lock(loop._posting)
    loop._last_run_thread = thread_number()
    unlock(loop._posting)
    return 0


cdef inline int put_async(LoopExecution loop, Runnable handle) noexcept:
    lock(loop._posting)
    loop._sent_async = handle
    loop._has_sent_async = True
    unlock(loop._posting)
    return 0


cdef inline Runnable taken_async(LoopExecution loop):
    cdef Runnable sent
    lock(loop._posting)
    sent = loop._sent_async
    loop._sent_async = None
    loop._has_sent_async = False
    unlock(loop._posting)
    return sent
