from libc.stdint cimport uint8_t, uint16_t, uint32_t, uintptr_t
from libc.string cimport memcmp, memcpy, memset, strlen
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize
from cpython.ref cimport PyObject

cdef extern from "<netinet/in.h>" nogil:
    int AF_INET
    int AF_INET6
    int AF_UNIX
    struct in_addr:
        uint32_t s_addr
    struct in6_addr:
        pass
    struct sockaddr:
        pass
    struct sockaddr_in:
        uint16_t sin_family
        uint16_t sin_port
        in_addr sin_addr
    struct sockaddr_in6:
        uint16_t sin6_family
        uint16_t sin6_port
        uint32_t sin6_flowinfo
        in6_addr sin6_addr
        uint32_t sin6_scope_id
    struct sockaddr_storage:
        uint16_t ss_family
    uint16_t htons(uint16_t value)
    uint16_t ntohs(uint16_t value)
    uint32_t htonl(uint32_t value)
    uint32_t ntohl(uint32_t value)

cdef extern from "<arpa/inet.h>" nogil:
    const char *inet_ntop(int family, const void *address, char *text, unsigned int size)
    int inet_pton(int family, const char *text, void *address)

cdef enum:
    PATH_SIZE = 108
    PATH_AT = sizeof(unsigned short)  # behind the family

cdef extern from "<sys/un.h>":
    struct sockaddr_un:
        char sun_path[PATH_SIZE]

cdef extern from "Python.h":
    bint PyUnicode_CheckExact(object thing)
    bint PyTuple_CheckExact(object thing)
    bint PyLong_CheckExact(object thing)
    object PyUnicode_FromStringAndSize(const char *text, Py_ssize_t size)
    object PyUnicode_FromString(const char *text)
    object PyUnicode_DecodeFSDefault(const char *text)
    object PyUnicode_EncodeFSDefault(object text)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    bint PyUnicode_IS_ASCII(object text)
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1

cdef enum:
    MOST_ADDRESSES = 256
    PLACES = 1024


cdef class AddressBook:
    cdef list _shown
    cdef sockaddr_in6 _written[MOST_ADDRESSES]
    cdef uint8_t _places[PLACES]


# Conversion from the kernel's form.


cdef inline object shown(AddressBook book, sockaddr_storage *address, unsigned int length):
    # As socket.recvfrom gives it. A known address is the same tuple again, which no program can change.
    cdef Py_ssize_t place
    cdef object known
    if not (
        (length == sizeof(sockaddr_in) and address.ss_family == AF_INET)
        or (length == sizeof(sockaddr_in6) and address.ss_family == AF_INET6)
    ):
        return read_address(address, length)
    place = place_of(address)
    known = book._shown[place]
    if known is None or memcmp(&book._written[place], address, length) != 0:
        known = read_address(address, length)
        if known is not None:
            memcpy(&book._written[place], address, length)
            book._shown[place] = known
            book._places[pointer_place(<PyObject *>known)] = <uint8_t>place
    return known


cdef inline Py_ssize_t place_of(sockaddr_storage *address) noexcept:
    cdef uint32_t mixed
    cdef uint32_t words[4]
    if address.ss_family == AF_INET:
        mixed = (<sockaddr_in *>address).sin_addr.s_addr ^ (<uint32_t>(<sockaddr_in *>address).sin_port << 8)
    else:
        memcpy(words, &(<sockaddr_in6 *>address).sin6_addr, sizeof(words))
        mixed = words[0] ^ words[1] ^ words[2] ^ words[3] ^ (<uint32_t>(<sockaddr_in6 *>address).sin6_port << 8)
    return <uint32_t>(mixed * 2654435761U) >> 24


cdef inline Py_ssize_t pointer_place(PyObject *address) noexcept:
    return (<uintptr_t>address >> 4) & (PLACES - 1)


cdef inline Py_ssize_t show_ipv4(uint32_t network_order, char *text) noexcept:
    # Return the length of the text. The C library's function takes several times as long.
    cdef unsigned char *numbers = <unsigned char *>&network_order
    cdef unsigned int number
    cdef Py_ssize_t place, size = 0
    for place in range(4):
        number = numbers[place]
        if number >= 100:
            text[size] = <char>(48 + number // 100)
            size += 1
        if number >= 10:
            text[size] = <char>(48 + number // 10 % 10)
            size += 1
        text[size] = <char>(48 + number % 10)
        text[size + 1] = b"."
        size += 2
    return size - 1


cdef inline object read_address(sockaddr_storage *address, unsigned int length):
    cdef char text[64]
    cdef sockaddr_in *ipv4
    cdef sockaddr_in6 *ipv6
    cdef char *path
    if length == 0:
        return None
    if address.ss_family == AF_INET:
        ipv4 = <sockaddr_in *>address
        return (PyUnicode_FromStringAndSize(text, show_ipv4(ipv4.sin_addr.s_addr, text)), <int>ntohs(ipv4.sin_port))
    if address.ss_family == AF_INET6:
        ipv6 = <sockaddr_in6 *>address
        inet_ntop(AF_INET6, &ipv6.sin6_addr, text, sizeof(text))
        return (
            PyUnicode_FromString(text),
            <int>ntohs(ipv6.sin6_port),
            ntohl(ipv6.sin6_flowinfo),
            ipv6.sin6_scope_id,
        )
    if address.ss_family == AF_UNIX:
        path = (<sockaddr_un *>address).sun_path
        if length > PATH_AT and path[0] == 0:
            return PyBytes_FromStringAndSize(path, length - PATH_AT)
        (<char *>address)[length if length < sizeof(sockaddr_storage) else sizeof(sockaddr_storage) - 1] = 0
        return PyUnicode_DecodeFSDefault(path) if length > PATH_AT else ""
    return None


# Conversion to the kernel's form.


cdef inline unsigned int written(AddressBook book, int family, object address, sockaddr_storage **into) except? 65536:
    # Return the length, or 0 if only Python can convert this address. `into` points to the written address;
    # it may be moved to another one.
    cdef Py_ssize_t place
    if book is not None and PyTuple_CheckExact(address):
        place = book._places[pointer_place(<PyObject *>address)]
        if book._shown[place] is address and book._written[place].sin6_family == family:
            into[0] = <sockaddr_storage *>&book._written[place]
            return sizeof(sockaddr_in) if family == AF_INET else sizeof(sockaddr_in6)
    return write_address(family, address, into[0])


cdef inline long long small_number(object number, long long largest) noexcept:
    # Return a number from 0 to `largest`, or -1: then Python reports what is wrong with it.
    cdef int overflow = 0
    cdef long long value
    if not PyLong_CheckExact(number):
        return -1
    value = PyLong_AsLongLongAndOverflow(number, &overflow)
    return -1 if overflow or value < 0 or value > largest else value


cdef inline bint numeric_host(int family, object host, void *into) except -1:
    cdef Py_ssize_t size = 0
    cdef const char *text
    if not PyUnicode_CheckExact(host) or not PyUnicode_IS_ASCII(host):
        return False
    text = PyUnicode_AsUTF8AndSize(host, &size)
    return size < 64 and <Py_ssize_t>strlen(text) == size and inet_pton(family, text, into) == 1


cdef inline unsigned int write_address(int family, object address, sockaddr_storage *into) except? 65536:
    # Return the length, or 0 if only Python can convert this address.
    cdef sockaddr_in *ipv4
    cdef sockaddr_in6 *ipv6
    cdef long long port, flow_info = 0, scope_id = 0
    cdef Py_ssize_t size
    if family == AF_UNIX:
        return write_path(address, into)
    if family == 0 or not PyTuple_CheckExact(address):
        return 0
    size = len(<tuple>address)
    if size < 2:
        return 0
    port = small_number((<tuple>address)[1], 0xFFFF)
    if port < 0:
        return 0
    memset(into, 0, sizeof(sockaddr_in6))
    if family == AF_INET:
        ipv4 = <sockaddr_in *>into
        if size != 2 or not numeric_host(AF_INET, (<tuple>address)[0], &ipv4.sin_addr):
            return 0
        ipv4.sin_family = AF_INET
        ipv4.sin_port = htons(<uint16_t>port)
        return sizeof(sockaddr_in)
    ipv6 = <sockaddr_in6 *>into
    if size > 2:
        flow_info = small_number((<tuple>address)[2], 0xFFFFF)
    if size > 3:
        scope_id = small_number((<tuple>address)[3], 0xFFFFFFFF)
    if size > 4 or flow_info < 0 or scope_id < 0:
        return 0
    if not numeric_host(AF_INET6, (<tuple>address)[0], &ipv6.sin6_addr):
        return 0
    ipv6.sin6_family = AF_INET6
    ipv6.sin6_port = htons(<uint16_t>port)
    ipv6.sin6_flowinfo = htonl(<uint32_t>flow_info)
    ipv6.sin6_scope_id = <uint32_t>scope_id
    return sizeof(sockaddr_in6)


cdef inline unsigned int write_path(object address, sockaddr_storage *into) except? 65536:
    cdef bytes path
    cdef Py_ssize_t size
    if PyBytes_CheckExact(address):
        path = address
    elif PyUnicode_CheckExact(address):
        try:
            path = PyUnicode_EncodeFSDefault(address)
        except UnicodeError:
            path = b""
    else:
        return 0
    size = len(path)
    if size == 0 or size >= PATH_SIZE or (path[0] != 0 and 0 in path):
        return 0
    into.ss_family = AF_UNIX
    memcpy((<sockaddr_un *>into).sun_path, PyBytes_AS_STRING(path), size + 1)
    return PATH_AT + <unsigned int>size + (0 if path[0] == 0 else 1)
