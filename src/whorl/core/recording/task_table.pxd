from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

cdef extern from "Python.h":
    PyObject *new_reference "PyWeakref_NewRef"(PyObject *thing, PyObject *callback) except NULL
    void drop_reference "Py_DECREF"(PyObject *thing)

cdef extern from "whorl/core/recording/tasks.h":
    PyObject *referent "whorl_referent"(PyObject *reference) noexcept

cdef enum:
    RECORD_FREELIST_SIZE = 256

cdef Py_ssize_t LEAST_LIMIT
cdef int CANCELLED
cdef int FAILED


cdef struct TaskRecord:
    PyObject *address
    PyObject *reference  # NULL: the task is held, so it is alive
    TaskRecord *next
    int64_t kind
    int64_t number
    int64_t name
    int64_t made_ns
    int64_t steps
    int64_t busy_ns
    int64_t scheduled_ns
    int64_t longest_ns
    int64_t wakes
    int64_t self_wakes
    int64_t queued_ns
    int64_t waker
    bint is_late
    bint is_told

ctypedef TaskRecord *Record


cdef class TaskTable:
    cdef Record *_records
    cdef Py_ssize_t _mask
    cdef Py_ssize_t _count
    cdef Py_ssize_t _limit
    cdef Record _freelist
    cdef Py_ssize_t _freelist_size


cdef class EndedRow:
    cdef str _coroutine
    cdef int64_t _tasks
    cdef int64_t _cancelled
    cdef int64_t _failed
    cdef int64_t _steps
    cdef int64_t _busy_ns
    cdef int64_t _scheduled_ns
    cdef int64_t _idle_ns
    cdef int64_t _longest_ns
    cdef int64_t _wakes
    cdef int64_t _self_wakes

    cdef int _add(self, Record record, int64_t now, int flags) except -1


cdef inline Record no_record() noexcept:
    return NULL


cdef inline bint is_record(Record record) noexcept:
    return record != NULL


cdef inline int begin_table(TaskTable table) except -1:
    table._records = <Record *>PyMem_RawCalloc(64, sizeof(Record))
    if table._records == NULL:
        raise MemoryError
    table._mask = 63
    return 0


cdef inline int free_record(TaskTable table, Record record) except -1:
    # Some are kept for other tasks.
    if record.reference != NULL:
        drop_reference(record.reference)
    if table._freelist_size >= RECORD_FREELIST_SIZE:
        PyMem_RawFree(record)
        return 0
    record.next = table._freelist
    table._freelist = record
    table._freelist_size += 1
    return 0


cdef inline Record empty_record(TaskTable table) noexcept:
    # All its fields are empty that `add` and its caller do not set.
    cdef Record record = table._freelist
    if record == NULL:
        return <Record>PyMem_RawCalloc(1, sizeof(TaskRecord))
    table._freelist = record.next
    table._freelist_size -= 1
    record.steps = record.busy_ns = record.scheduled_ns = record.longest_ns = 0
    record.wakes = record.self_wakes = record.waker = 0
    record.is_late = record.is_told = False
    return record


cdef inline int end_table(TaskTable table) except -1:
    cdef Py_ssize_t place
    cdef Record record
    if table._records == NULL:
        return 0
    for place in range(table._mask + 1):
        while table._records[place] != NULL:
            record = table._records[place]
            table._records[place] = record.next
            free_record(table, record)
    PyMem_RawFree(table._records)
    table._records = NULL
    while table._freelist != NULL:
        record = table._freelist
        table._freelist = record.next
        PyMem_RawFree(record)
    return 0


cdef inline Py_ssize_t place_of(TaskTable table, PyObject *address) noexcept:
    # Objects are aligned: the lowest bits say nothing.
    return <Py_ssize_t>((<uint64_t>address >> 4) ^ (<uint64_t>address >> 14)) & table._mask


cdef inline bint is_alive(Record record) noexcept:
    return record.reference == NULL or referent(record.reference) == record.address


cdef inline int refer_weakly(Record record) except -1:
    if record.reference == NULL:
        record.reference = new_reference(record.address, NULL)
    return 0


cdef inline Record find(TaskTable table, object task) noexcept:
    cdef Record record = table._records[place_of(table, <PyObject *>task)]
    while record != NULL:
        if record.address == <PyObject *>task and is_alive(record):
            return record
        record = record.next
    return NULL


cdef inline int take(TaskTable table, Record record) except -1:
    cdef Record *link = &table._records[place_of(table, record.address)]
    while link[0] != record:
        link = &link[0].next
    link[0] = record.next
    table._count -= 1
    return 0


cdef inline int spread(TaskTable table) except -1:
    # More places. Without memory for them, the table is slower.
    cdef Py_ssize_t place, former = table._mask + 1
    cdef Record record
    cdef Record *old = table._records
    cdef Record *new = <Record *>PyMem_RawCalloc(2 * former, sizeof(Record))
    if new == NULL:
        return 0
    table._records = new
    table._mask = 2 * former - 1
    for place in range(former):
        while old[place] != NULL:
            record = old[place]
            old[place] = record.next
            record.next = new[place_of(table, record.address)]
            new[place_of(table, record.address)] = record
    PyMem_RawFree(old)
    return 0


cdef inline Record add(TaskTable table, object task) except NULL:
    cdef Py_ssize_t place
    cdef Record record = empty_record(table)
    if record == NULL:
        raise MemoryError
    record.address = <PyObject *>task
    record.reference = NULL
    record.queued_ns = -1
    if table._count > table._mask:
        spread(table)
    place = place_of(table, record.address)
    record.next = table._records[place]
    table._records[place] = record
    table._count += 1
    return record


cdef inline bint is_full(TaskTable table) noexcept:
    return table._count >= table._limit


cdef inline Record take_dead(TaskTable table) noexcept:
    cdef Py_ssize_t place
    cdef Record record, dead = NULL
    cdef Record *link
    for place in range(table._mask + 1):
        link = &table._records[place]
        while link[0] != NULL:
            record = link[0]
            if is_alive(record):
                link = &record.next
            else:
                link[0] = record.next
                record.next = dead
                dead = record
                table._count -= 1
    table._limit = max(LEAST_LIMIT, 2 * table._count)
    return dead
