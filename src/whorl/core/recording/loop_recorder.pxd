cimport cython
from libc.stdint cimport int64_t

from whorl.core.callback cimport Callback, Runnable
from whorl.core.figures cimport move_back, note as note_number
from whorl.core.recording.names cimport forget_names
from whorl.core.recording.recorder cimport Recorder, units
from whorl.core.recording.slot cimport end_fields, read_ticks, refresh_figures
from whorl.core.recording.task_table cimport Record, TaskTable, find, is_record, no_record
from whorl.core.recording.tasks cimport LoopTasks

cdef int UPDATED
cdef int TURNS
cdef int EVENTS
cdef int CALLBACKS
cdef int IDLE
cdef int RUN_BEGAN
cdef int RAN
cdef int WAITING
cdef int TIMERS
cdef int OPEN_HANDLES
cdef int STATE
cdef int THREAD
cdef int SLEEP_BEGAN
cdef int CALL_BEGAN
cdef int CALL_NAME
cdef int CALL_TASK
cdef int CLOSED
cdef int TURN
cdef int POLL
cdef int CALLBACK
cdef int CALLBACK_TIMES
cdef int TIMER_LATE
cdef int READY
cdef int BYTES_IN
cdef int BYTES_OUT
cdef int HANDLES
cdef int UTILIZATION
cdef int HANDLE_OPENED
cdef int IO
cdef int64_t LATE_NS
cdef int64_t COUNTERS_NS

cpdef object open_loop(Recorder recorder, object loop)


cdef class LoopRecorder(LoopTasks):
    cdef bint _in_call
    cdef bint _in_machine_turn
    cdef int64_t _turn_ns
    cdef int64_t _slept_ns
    cdef int64_t _entries_before
    cdef int64_t _counted_ns
    cdef int64_t _idle_before
    cdef int64_t _handle_count
    cdef int64_t _published_ns

    cpdef object _leave_slot(self)
    @cython.locals(record=Record)
    cdef object _begin(self, Runnable entry)
    @cython.locals(took=int64_t)
    cdef object _end(self, Runnable entry, int64_t now)
    @cython.locals(is_handle=bint, low=int64_t, flags=int)
    cdef object _put_callback(self, Runnable entry, int64_t took)
    @cython.locals(fields="int64_t *")
    cdef object _publish(
        self, int64_t now, unsigned long thread, int64_t turns, int64_t events, int64_t callbacks, int64_t idle_ns,
        int64_t run_began, int64_t ran_ns, int64_t ready, int64_t timers, int64_t handles
    )
    cdef int64_t _batch_begins(self, int64_t poll_ended) except? -1
    cdef int _batch_ends(self) except -1
    @cython.locals(took=int64_t)
    cdef int _turn_ends(self, int64_t now, int64_t entries) except -1
    cdef int _falls_asleep(self, int64_t now) except -1
    cdef int _has_slept(self, int64_t began, int64_t now, int64_t found, int64_t entries) except -1
    cdef object _timer_was_late(self, Callback timer, int64_t now, int64_t late)
    @cython.locals(name=int64_t)
    cdef object _handle_changed(self, object handle, int kind)
    @cython.locals(elapsed=int64_t, asleep=int64_t)
    cdef object _write_counters(self, int64_t now, int64_t ready, int64_t idle_ns)
    cdef int _put_total(self, int64_t now, int kind, int64_t total) except -1
