cimport cython

from whorl.aio.sockets.watch cimport (
    DescriptorWatch,
    descriptor_of,
    ensure_no_transport,
    is_possible,
    keep_spare,
    new_watch,
    number_of,
    refuse_transport,
)
from whorl.core.callback cimport Callback, new_callback
from whorl.core.loop.loop cimport Loop
from whorl.core.pollers.contract cimport IOHandle


@cython.locals(fd=object, found=IOHandle)
cdef DescriptorWatch _find(Loop loop, object fileobj, bint is_checked)
@cython.locals(watched=DescriptorWatch)
cdef DescriptorWatch _ours(Loop loop, object fileobj, bint is_checked)
@cython.locals(watched=DescriptorWatch, entry=Callback)
cdef Callback _add(Loop loop, object fileobj, bint is_reader, bint is_checked, object callback, tuple args)
@cython.locals(watched=DescriptorWatch, was_there=bint)
cdef bint _remove(Loop loop, object fileobj, bint is_reader, bint is_checked) except -1
@cython.locals(watched=DescriptorWatch)
cpdef object forget_writer(Loop loop, object fd, Callback writer)
cpdef object unwatch_reader(Loop loop, object fd)
cpdef object unwatch_writer(Loop loop, object fd)
cpdef object remove_reader(Loop loop, object fd)
cpdef object remove_writer(Loop loop, object fd)
