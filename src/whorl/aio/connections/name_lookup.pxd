cimport cython
from libc.stdint cimport uint64_t
from cpython.bytes cimport PyBytes_AS_STRING

from whorl.core cimport states
from whorl.core.kernel.socket_addresses cimport AF_INET, AF_INET6, read_address, sockaddr_storage
from whorl.core.loop.loop cimport Loop
from whorl.core.pollers.contract cimport IOHandle

cdef extern from "<netdb.h>" nogil:
    struct addrinfo:
        int ai_family
        int ai_socktype
        int ai_protocol
        unsigned int ai_addrlen
        void *ai_addr
        char *ai_canonname
        addrinfo *ai_next
    const char *gai_strerror(int code)
    int EAI_SYSTEM

cdef extern from "whorl/aio/connections/name_lookup.h":
    ctypedef struct Channel "whorl_name_channel":
        pass
    ctypedef struct Lookup "whorl_name_lookup":
        Lookup *next
        uint64_t number
        addrinfo *answer
        int code
        int error
    Channel *open_channel "whorl_name_open"(int fd) noexcept
    void close_channel "whorl_name_close"(Channel *channel) noexcept
    int ask "whorl_name_ask"(
        Channel *channel, uint64_t number, const char *host, Py_ssize_t host_size, const char *service,
        Py_ssize_t service_size, int family, int kind, int protocol, int flags, Py_ssize_t most_threads
    ) noexcept
    void withdraw "whorl_name_withdraw"(Channel *channel, uint64_t number) noexcept
    Lookup *take_answers "whorl_name_take"(Channel *channel) noexcept
    void free_lookup "whorl_name_free"(Lookup *lookup) noexcept

cdef extern from "Python.h":
    str PyUnicode_FromString(const char *text)

cdef Py_ssize_t MOST_THREADS
cdef str SHARED
cdef Py_ssize_t LONGEST_LABEL
cdef dict FAMILIES
cdef dict KINDS
cdef object gaierror
cdef object os_error
cdef object audit


cdef class NameLookups(IOHandle):
    cdef Channel *_channel
    cdef Loop _machine
    cdef dict _waiting
    cdef uint64_t _last_number

    @cython.locals(fd=int)
    cdef object _open(self)
    cpdef uint64_t begin(
        self, object future, bytes host, bytes port, int family, int kind, int protocol, int flags
    ) except? 0
    cpdef object give_up(self, uint64_t number)
    cpdef object end(self)
    cpdef object _on_events(self, int seen)
    cpdef object _release(self)


cpdef NameLookups lookups_of(object loop)
@cython.locals(lookups=NameLookups, number=uint64_t)
cpdef tuple look_up(object loop, object host, object port, object family, object kind, object protocol, object flags)
cdef object encoded_host(object host)
cdef object encoded_port(object port)
cdef bint is_small(object number) except -1


cdef inline bint open_lookups(NameLookups lookups, int fd) noexcept:
    lookups._channel = open_channel(fd)
    return lookups._channel != NULL


cdef inline object close_lookups(NameLookups lookups):
    if lookups._channel != NULL:
        close_channel(lookups._channel)
        lookups._channel = NULL


cdef inline bint begin_lookup(
    NameLookups lookups, bytes host, bytes service, int family, int kind, int protocol, int flags
) noexcept:
    # Return whether a thread will do it.
    return lookups._channel != NULL and ask(
        lookups._channel, lookups._last_number,
        NULL if host is None else PyBytes_AS_STRING(host), -1 if host is None else len(host),
        NULL if service is None else PyBytes_AS_STRING(service), -1 if service is None else len(service),
        family, kind, protocol, flags, MOST_THREADS,
    ) == 0


cdef inline object withdraw_lookup(NameLookups lookups, uint64_t number):
    if lookups._channel != NULL:
        withdraw(lookups._channel, number)


cdef inline object finish_lookups(NameLookups lookups):
    # Give each future its answer.
    cdef Lookup *lookup
    cdef Lookup *next
    failure = None
    if lookups._channel == NULL:
        return None
    next = take_answers(lookups._channel)
    while next != NULL:
        lookup = next
        next = lookup.next
        try:
            finish_lookup(lookups._waiting.pop(lookup.number, None), lookup)
        except BaseException as error:  # The others get theirs all the same.
            failure = error
        free_lookup(lookup)
    if failure is not None:
        raise failure


cdef inline object finish_lookup(tuple waiting, Lookup *lookup):
    cdef list rows = None
    cdef object failure = None
    cdef object future
    if waiting is None:
        return None
    future = waiting[0]
    if future.done():
        return None
    if lookup.code == EAI_SYSTEM:
        failure = os_error(lookup.error)
    elif lookup.code != 0:
        failure = gaierror(lookup.code, PyUnicode_FromString(gai_strerror(lookup.code)))
    else:
        try:
            rows = answer_of(lookup.answer)
        except Exception as error:  # No `return` in here: Cython's crashes if a traceback got no memory.
            failure = error
    if failure is None:
        future.set_result(rows)
    else:
        future.set_exception(failure)


cdef inline list answer_of(addrinfo *row):
    # As socket.getaddrinfo returns it. The C library knows no families besides these two.
    cdef list rows = []
    while row != NULL:
        if row.ai_family == AF_INET or row.ai_family == AF_INET6:
            rows.append((
                FAMILIES.get(row.ai_family, row.ai_family),
                KINDS.get(row.ai_socktype, row.ai_socktype),
                row.ai_protocol,
                "" if row.ai_canonname == NULL else PyUnicode_FromString(row.ai_canonname),
                read_address(<sockaddr_storage *>row.ai_addr, row.ai_addrlen),
            ))
        row = row.ai_next
    return rows
