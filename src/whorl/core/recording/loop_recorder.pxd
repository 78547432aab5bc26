cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uintptr_t

from whorl.core.callback cimport Callback, Runnable
from whorl.core.figures cimport move_back, note_in
from whorl.core.recording cimport layout
from whorl.core.recording.names cimport forget_names, function_key, type_key
from whorl.core.recording.recorder cimport Recorder, units
from whorl.core.recording.slot cimport end_fields, read_ticks, refresh_figures, tell_call, tell_no_call
from whorl.core.recording.task_table cimport Record, find, forget_newest, is_record, no_record
from whorl.core.recording.tasks cimport LoopTasks

cdef int CLOSED
cdef int64_t LATE_NS, COUNTERS_NS

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
    cdef int _begin(self, Runnable entry) except -1
    @cython.locals(is_handle=bint, low=int64_t, flags=int)
    cdef int _end_long(self, Runnable entry, int64_t took) except -1
    @cython.locals(fields="int64_t *")
    cdef object _publish(
        self, int64_t now, unsigned long thread, int64_t turns, int64_t events, int64_t callbacks, int64_t idle_ns,
        int64_t run_began, int64_t ran_ns, int64_t ready, int64_t timers, int64_t handles
    )
    cdef object _put_turn(self, int64_t took, int64_t entries)
    cdef int _falls_asleep(self, int64_t now) except -1
    cdef int _has_slept(self, int64_t began, int64_t now, int64_t found, int64_t entries) except -1
    cdef object _timer_was_late(self, Callback timer, int64_t now, int64_t late)
    @cython.locals(name=int64_t)
    cdef object _handle_changed(self, object handle, int kind)
    @cython.locals(elapsed=int64_t, asleep=int64_t)
    cdef object _write_counters(self, int64_t now, int64_t ready, int64_t idle_ns)
    cdef int _put_total(self, int64_t now, int kind, int64_t total) except -1


cdef inline bint begins_alike(LoopRecorder recorder, Runnable entry) noexcept:
    # The entry calls what the one before it has called, and is no step of a task: the name is known.
    cdef uintptr_t key
    if type(entry) is Callback:
        key = function_key(<PyObject *>(<Callback>entry)._callback)
    else:
        key = type_key(entry)
        if key != recorder._plain_type:
            return False
    if key == 0 or key != recorder._last_key:
        return False
    recorder._in_call = True
    tell_call(recorder, recorder._last_ns, recorder._last_name, 0)
    return True


cdef inline int end_call(LoopRecorder recorder, Runnable entry, int64_t now) except -1:
    cdef int64_t took = now - recorder._last_ns
    if not recorder._in_call:
        return 0
    recorder._in_call = False
    if recorder._call_times != NULL:  # else the recording has ended meanwhile
        note_in(recorder._call_times, took)
    if recorder._current != NULL:
        recorder._end_step(now)
    elif took >= recorder._shortest_ns:
        recorder._end_long(entry, took)
    recorder._last_ns = now
    return 0


cdef inline int64_t begin_batch(LoopRecorder recorder, int64_t poll_ended) noexcept:
    if poll_ended > recorder._last_ns:
        recorder._last_ns = poll_ended
    return recorder._last_ns


cdef inline int end_batch(LoopRecorder recorder) noexcept:
    tell_no_call(recorder)
    recorder._in_call = False
    return 0


cdef inline int end_turn(LoopRecorder recorder, int64_t now, int64_t entries) except -1:
    cdef int64_t took = now - recorder._turn_ns - recorder._slept_ns
    if took >= recorder._shortest_ns:
        recorder._put_turn(took, entries)
    recorder._turn_ns = now
    recorder._slept_ns = 0
    recorder._entries_before = entries
    return 0
