cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uintptr_t
from libc.string cimport memset

from whorl.core.callback cimport Callback, Runnable
from whorl.core.recording.slot cimport LoopSlot
from whorl.core.recording.steps cimport ask

cdef extern from "whorl/core/recording/tasks.h":
    uintptr_t address_of "whorl_address_of"(object thing) noexcept
    uintptr_t type_key "whorl_type_key"(object thing) noexcept
    uintptr_t key_of "whorl_key_of"(object called) noexcept
    uintptr_t function_key "whorl_function_key"(PyObject *called) noexcept

cdef enum:
    PLACES_OF_NAMES = 512

cdef Py_ssize_t NAMES_KEPT
cdef object _PARTIAL
cdef object _COROUTINE
cdef object _COROUTINE_NAME
cdef object _GENERATOR
cdef object _METHOD
cdef object _FUNCTION
cdef object _BUILTIN
cdef object _COMPILED_FUNCTION
cdef object _NAMED


cdef struct KnownName:
    uintptr_t key
    int64_t name


cdef class CallbackNames(LoopSlot):
    cdef dict _kept
    cdef KnownName _cache[PLACES_OF_NAMES]
    cdef uintptr_t _last_key
    cdef int64_t _last_name

    @cython.locals(called=object, callback=Callback, key=uintptr_t, name=int64_t)
    cdef int64_t _name_of(self, Runnable entry) except -1
    @cython.locals(name=int64_t)
    cdef int64_t _find_name(self, object called) except -1
    @cython.locals(key=uintptr_t)
    cdef int64_t _look_up_name(self, object called) except -1
    @cython.locals(name=int64_t)
    cdef int64_t _new_name(self, uintptr_t key, object kept, object named) except -1
    @cython.locals(name=int64_t)
    cdef int64_t _coroutine_name(self, object coro) except -1
    @cython.locals(key=uintptr_t, name=int64_t)
    cdef int64_t _new_coroutine_name(self, object coro, object named) except -1


cdef inline KnownName *known_place(CallbackNames recorder, uintptr_t key) noexcept:
    return &recorder._cache[((key >> 4) ^ (key >> 13)) & (PLACES_OF_NAMES - 1)]


cdef inline int64_t known_name(CallbackNames recorder, uintptr_t key) noexcept:
    cdef KnownName *known = known_place(recorder, key)
    return known.name if known.key == key else 0


cdef inline int keep_name(CallbackNames recorder, uintptr_t key, int64_t name) noexcept:
    cdef KnownName *known = known_place(recorder, key)
    known.key = key
    known.name = name
    return 0


cdef inline int forget_names(CallbackNames recorder) noexcept:
    recorder._last_key = 0
    memset(&recorder._cache[0], 0, sizeof(recorder._cache))
    return 0
