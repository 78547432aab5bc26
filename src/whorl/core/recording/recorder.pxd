from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint64_t, uintptr_t

from whorl.core.kernel.kernel cimport Kernel

cdef extern from "whorl/core/recording/recorder.h":
    void write_event "whorl_put_event"(
        int64_t *place, int64_t *written, int64_t at, int64_t took, int kind, int flags, int64_t loop, int64_t subject
    ) noexcept
from whorl.core.recording cimport layout
from whorl.core.threads cimport Mutex, lock, seen_number, unlock

cdef int EVENT_WORDS, WRITTEN

cdef int64_t units(int64_t took) noexcept


cdef class Recorder:
    cdef object __weakref__
    cdef object _view
    cdef int64_t *_words
    cdef int64_t _loops_at
    cdef int64_t _names_at
    cdef int64_t _stalls_at
    cdef int64_t _ring_at
    cdef int64_t _names_size
    cdef int64_t _stall_count
    cdef int64_t _event_count
    cdef readonly int64_t shortest_ns
    cdef int64_t _place
    cdef Mutex _writing[1]
    cdef dict _name_ids
    cdef Kernel _kernel
    cdef list _open
    cdef int64_t _loops_opened
    cdef int64_t _last_name
    cdef seen_number _tick_parts  # all loops write both
    cdef seen_number _most_ticks

    cdef object _check(self)
    cpdef int64_t name_id(self, str text) except -1
    cdef int64_t _write_name(self, str text, bytes name) except -1
    cdef object _name_text(self, int64_t number)
    cdef int _put(self, int64_t at, int64_t took, int kind, int flags, int64_t loop, int64_t subject) except -1


cdef inline int begin_memory(Recorder recorder) except -1:
    # The view keeps the memory; a second buffer of it only tells the address.
    cdef Py_buffer memory
    PyObject_GetBuffer(recorder._view, &memory, PyBUF_WRITABLE)
    recorder._words = <int64_t *>memory.buf
    PyBuffer_Release(&memory)
    if <uintptr_t>recorder._words % 8:
        raise ValueError("the memory of a recording begins at a multiple of 8")
    return 0


cdef inline int put_sign(Recorder recorder, int64_t index, int64_t number) except -1:
    # The native thread writes it, too.
    (<seen_number *>recorder._words)[index] = number
    return 0


cdef inline int put_event(
    Recorder recorder, int64_t at, int64_t took, int kind, int flags, int64_t loop, int64_t subject
) except -1:
    lock(recorder._writing)
    write_event(
        recorder._words + recorder._ring_at // 8 + EVENT_WORDS * recorder._place,
        recorder._words + WRITTEN, at, took, kind, flags, loop, subject
    )
    recorder._place += 1
    if recorder._place == recorder._event_count:
        recorder._place = 0
    unlock(recorder._writing)
    return 0


cdef inline int begin_writing(Recorder recorder) noexcept:
    lock(recorder._writing)
    return 0


cdef inline int end_writing(Recorder recorder) noexcept:
    unlock(recorder._writing)
    return 0
