cimport cython
from libc.stdint cimport int64_t, uint64_t

from whorl.core cimport states
from whorl.core.figures cimport Block, Buckets, Figures, move_into
from whorl.core.kernel.kernel cimport Kernel
from whorl.core.recording cimport layout
from whorl.core.recording.recorder cimport Recorder

cdef extern from "whorl/core/kernel/kernel.h":
    int64_t read_ticks "whorl_read_ticks"() noexcept nogil

cdef extern from "whorl/core/recording/recorder.h":
    void write_call "whorl_write_call"(int64_t *call, int64_t began, int64_t name, int64_t task) noexcept

cdef enum:
    ROOM_FOR_FIELDS = 32
    TICK_SHIFT = 24

cdef int OPEN
cdef int64_t LONGEST_BY_TICKS, TICK_PARTS


cdef class LoopSlot:
    cdef object __weakref__
    cdef Recorder _recorder
    cdef bint _is_open
    cdef int64_t _slot
    cdef int64_t _slot_at
    cdef readonly int64_t number
    cdef Kernel _kernel
    cdef Figures _figures
    cdef int64_t _shortest_ns
    cdef int64_t _own_fields[ROOM_FOR_FIELDS]
    cdef int64_t *_fields
    cdef int64_t *_call
    cdef Buckets *_call_times  # the histogram of callbacks, while the slot is open
    cdef bint _has_ticks
    cdef int64_t _tick_parts
    cdef uint64_t _most_ticks
    cdef int64_t _base_ns
    cdef int64_t _base_ticks
    cdef int64_t _measured_ns
    cdef int64_t _measured_ticks

    cdef object _open_slot(self, object loop)
    cdef int _put(self, int64_t at, int64_t took, int kind, int flags, int64_t high, int64_t low) except -1
    cdef int64_t _read_clock(self) except? -1
    @cython.locals(ticks=int64_t, tick_ns=double)
    cdef int _measure_ticks(self, int64_t now) except -1


cdef inline int begin_fields(LoopSlot opened) except -1:
    opened._fields = opened._recorder._words + opened._slot_at // 8
    opened._call = opened._fields + layout.CALL_BEGAN
    return 0


cdef inline int end_fields(LoopSlot opened) except -1:
    opened._call_times = NULL
    opened._fields = &opened._own_fields[0]
    opened._call = opened._fields + layout.CALL_BEGAN
    return 0


cdef inline int tell_call(LoopSlot opened, int64_t began, int64_t name, int64_t task) noexcept:
    write_call(opened._call, began, name, task)
    return 0


cdef inline int tell_no_call(LoopSlot opened) noexcept:
    opened._call[0] = 0
    return 0


cdef inline int move_figures(LoopSlot opened) except -1:
    move_into(opened._figures, <Block *>(opened._recorder._words + (opened._slot_at + layout.FIGURES_AT) // 8))
    opened._call_times = opened._figures.histograms + states.CALLBACK
    return 0


cdef inline int refresh_figures(LoopSlot opened) noexcept:
    return 0


cdef inline int64_t time_of(LoopSlot recorder) except? -1:
    # Since the base, by ticks. Not if that is long, nor if the counter jumped back, nor before it was measured.
    cdef uint64_t passed = <uint64_t>(read_ticks() - recorder._base_ticks)
    if passed < recorder._most_ticks:
        return recorder._base_ns + <int64_t>((passed * <uint64_t>recorder._tick_parts) >> TICK_SHIFT)
    return recorder._read_clock()
