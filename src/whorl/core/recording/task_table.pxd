from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from whorl.core.recording cimport layout
from whorl.core.recording.names cimport CallbackNames
from whorl.core.recording.steps cimport TaskKind, ask_at

cdef extern from "Python.h":
    void drop_reference "Py_DECREF"(PyObject *thing)

cdef extern from "whorl/core/recording/tasks.h":
    PyObject *referent "whorl_referent"(PyObject *reference) noexcept
    PyObject *weak_reference "whorl_refer_weakly"(PyObject *thing) noexcept

cdef enum:
    RECORD_FREELIST_SIZE = 256
    LEAST_PLACES = 64

cdef Py_ssize_t LEAST_LIMIT


cdef struct TaskRecord:
    PyObject *address
    PyObject *reference  # NULL: the task is held, so it is alive
    TaskRecord *next
    PyObject *kind  # Kinds of tasks live as long as this module.
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


cdef class TaskTable(CallbackNames):
    cdef Record *_places
    cdef Py_ssize_t _mask
    cdef Py_ssize_t _count
    cdef Py_ssize_t _limit
    cdef Record _first_places[LEAST_PLACES]
    cdef object _newest
    cdef Record _newest_record
    cdef Record _freelist
    cdef Py_ssize_t _freelist_size

    cdef bint _release_newest(self) except -1


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

    cdef int _add(self, Record record, int64_t now, int flags) noexcept


cdef inline Record no_record() noexcept:
    return NULL


cdef inline bint is_record(Record record) noexcept:
    return record != NULL


cdef inline object name_of(Record record, object task):
    return (<TaskKind>record.kind).name_of(task)


cdef inline object state_of(Record record, object task):
    return ask_at(<PyObject *>(<TaskKind>record.kind).state_of, task)


cdef inline object failure_of(Record record, object task):
    return ask_at(<PyObject *>(<TaskKind>record.kind).failure_of, task)


cdef inline int begin_table(TaskTable table) noexcept:
    table._places = &table._first_places[0]
    table._mask = LEAST_PLACES - 1
    return 0


cdef inline int free_places(TaskTable table, Record *places) noexcept:
    if places != &table._first_places[0]:
        PyMem_RawFree(places)
    return 0


cdef inline int free_record(TaskTable table, Record record) noexcept:
    # Some are kept for other tasks.
    if record.reference != NULL:
        drop_reference(record.reference)
    if table._freelist_size >= RECORD_FREELIST_SIZE:
        PyMem_RawFree(record)
        return 0
    record.next = table._freelist
    table._freelist = record
    table._freelist_size = table._freelist_size + 1
    return 0


cdef inline Record empty_record(TaskTable table) noexcept:
    # All its fields are empty that `add_newest` and its caller do not set.
    cdef Record record = table._freelist
    if record == NULL:
        return <Record>PyMem_RawCalloc(1, sizeof(TaskRecord))
    table._freelist = record.next
    table._freelist_size = table._freelist_size - 1
    record.steps = record.busy_ns = record.scheduled_ns = record.longest_ns = 0
    record.wakes = record.self_wakes = record.waker = 0
    record.is_told = False
    return record


cdef inline int forget_newest(TaskTable table) noexcept:
    # Its record is kept, even if there are many: a caller may still use it.
    cdef Record record = table._newest_record
    if record != NULL:
        table._newest_record = NULL
        record.next = table._freelist
        table._freelist = record
        table._freelist_size = table._freelist_size + 1
    return 0


cdef inline int end_table(TaskTable table) noexcept:
    # Nothing here runs code: the references have no callbacks.
    cdef Py_ssize_t place
    cdef Record record
    if table._places == NULL:  # It was never begun.
        return 0
    for place in range(table._mask + 1):
        while table._places[place] != NULL:
            record = table._places[place]
            table._places[place] = record.next
            free_record(table, record)
    free_places(table, table._places)
    table._places = NULL
    forget_newest(table)
    while table._freelist != NULL:
        record = table._freelist
        table._freelist = record.next
        PyMem_RawFree(record)
    return 0


cdef inline Py_ssize_t place_of(TaskTable table, PyObject *address) noexcept:
    # Objects are aligned: the lowest bits say nothing.
    return <Py_ssize_t>((<uint64_t>address >> 4) ^ (<uint64_t>address >> 14)) & table._mask


cdef inline bint is_alive(Record record) noexcept:
    return referent(record.reference) == record.address


cdef inline Record find(TaskTable table, object task) noexcept:
    cdef Record record
    if task is table._newest:
        return table._newest_record
    record = table._places[place_of(table, <PyObject *>task)]
    while record != NULL:
        if record.address == <PyObject *>task and is_alive(record):
            return record
        record = record.next
    return NULL


cdef inline int spread(TaskTable table) noexcept:
    # More places. Without memory for them, the table is slower.
    cdef Py_ssize_t place, former = table._mask + 1
    cdef Record record
    cdef Record *old = table._places
    cdef Record *new = <Record *>PyMem_RawCalloc(2 * former, sizeof(Record))
    if new == NULL:
        return 0
    table._places = new
    table._mask = 2 * former - 1
    for place in range(former):
        while old[place] != NULL:
            record = old[place]
            old[place] = record.next
            record.next = new[place_of(table, record.address)]
            new[place_of(table, record.address)] = record
    free_places(table, old)
    return 0


cdef inline Record add_newest(TaskTable table, object task, TaskKind kind) noexcept:
    cdef Record record = empty_record(table)
    if record != NULL:
        record.address = <PyObject *>task
        record.reference = NULL
        record.kind = <PyObject *>kind
        record.queued_ns = -1
        table._newest_record = record
        table._newest = task
    return record


cdef inline bint put_newest(TaskTable table, object task) noexcept:
    # A new reference may let the collector run code, which may put the record itself. The caller holds the task.
    cdef Record record = table._newest_record
    cdef PyObject *reference
    cdef Py_ssize_t place
    if record == NULL:
        return True
    reference = weak_reference(<PyObject *>task)
    if reference == NULL:
        return False
    if table._newest_record != record:
        drop_reference(reference)
        return True
    record.reference = reference
    table._newest_record = NULL
    if table._count > table._mask:
        spread(table)
    place = place_of(table, record.address)
    record.next = table._places[place]
    table._places[place] = record
    table._count = table._count + 1
    return True


cdef inline int drop(TaskTable table, Record record) noexcept:
    cdef Record *link
    if record == table._newest_record:
        table._newest_record = NULL
    else:
        link = &table._places[place_of(table, record.address)]
        while link[0] != record:
            if link[0] == NULL:  # The recording has ended meanwhile.
                return 0
            link = &link[0].next
        link[0] = record.next
        table._count = table._count - 1
    free_record(table, record)
    return 0


cdef inline bint is_full(TaskTable table) noexcept:
    return table._count >= table._limit


cdef inline Record take_dead(TaskTable table) noexcept:
    cdef Py_ssize_t place
    cdef Record record, dead = NULL
    cdef Record *link
    for place in range(table._mask + 1):
        link = &table._places[place]
        while link[0] != NULL:
            record = link[0]
            if is_alive(record):
                link = &record.next
            else:
                link[0] = record.next
                record.next = dead
                dead = record
                table._count = table._count - 1
    table._limit = max(LEAST_LIMIT, 2 * table._count)
    return dead
