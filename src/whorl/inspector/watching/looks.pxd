cimport cython
from libc.stdint cimport int64_t

from whorl.core.figures cimport Figures, place_of
from whorl.core.loop.loop cimport Loop
from whorl.core.loop.state cimport LoopState
from whorl.core.recording.loop_recorder cimport LoopRecorder
from whorl.core.threads cimport HAS_GIL

cdef extern from "whorl/inspector/watching/native.h":
    bint native_start "whorl_native_start"(int64_t threshold_ns, int64_t interval_ns, bint reads_stacks) noexcept
    void native_stop "whorl_native_stop"() noexcept
    void native_follow_forks "whorl_native_follow_forks"() noexcept
    void native_forked "whorl_native_forked"() noexcept
    int native_watch "WHORL_NATIVE_WATCH"(LoopState state, Loop loop, int thread, int times) noexcept
    void native_unwatch "whorl_native_unwatch"(int place) noexcept
    object native_times "whorl_native_times"(int thread, int times)
    object native_file "whorl_native_file"(int thread, object name)
    object native_stack "whorl_native_stack"(int thread, int times)
    int64_t native_rest "whorl_native_rest"(int64_t until_ns) noexcept
    void native_wake "whorl_native_wake"() noexcept
    object native_before "whorl_native_before"(int place)
    object native_asked "whorl_native_asked"(int place)
    void native_beat "whorl_native_beat"(bint looks) noexcept
    int native_record "whorl_native_record"(object memory) except -1
    void native_clear "whorl_native_clear"() noexcept
    object native_take "whorl_native_take"()
    void native_end_at_once "whorl_native_end_at_once"(int number) noexcept


cdef inline int64_t call_began_in(LoopRecorder recorder) noexcept:
    return recorder._call[0]


cdef inline int64_t call_name_in(LoopRecorder recorder) noexcept:
    return recorder._call[1]


@cython.locals(taken=Py_ssize_t)
cpdef object progress_of(Loop loop)

@cython.locals(least=int)
cpdef object count_long(Figures figures, int64_t least_ns)
cpdef bint has_gil() except -1
cpdef object turn_began(Loop loop)
cpdef object batch_size(Loop loop)
@cython.locals(recorder=LoopRecorder)
cpdef object call_began(Loop loop)
@cython.locals(recorder=LoopRecorder)
cpdef object call_name(Loop loop)
cpdef object figures_of(Loop loop)
cpdef object polled_at(Loop loop)
cpdef object ran_last_here(Loop loop)
cpdef object start_native(int64_t threshold_ns, int64_t interval_ns, bint reads_stacks)
cpdef object stop_native()
cpdef object forget_native()
cpdef object watch(Loop loop, int thread, int times)
cpdef object unwatch(int place)
cpdef object times(int thread, int fd)
cpdef object file(int thread, str name)
cpdef object stack(int thread, int times)
cpdef object rest(int64_t until_ns)
cpdef object wake()
cpdef object before(int place)
cpdef object asked(int place)
cpdef object beat(bint looks)
cpdef object record(object memory)
cpdef object clear_recorded()
cpdef object end_at_once(int number)
@cython.locals(taken=list)
cpdef object captures()
