cimport cython

from whorl.aio.sockets.watch cimport (
    DescriptorWatch,
    descriptor_of,
    ensure_no_transport,
    is_possible,
    new_watch,
    number_of,
)
from whorl.core.callback cimport Callback, new_callback
from whorl.core.loop.loop cimport Loop
from whorl.core.pollers.contract cimport IOHandle


@cython.locals(fd=object, found=IOHandle)
cdef DescriptorWatch _find(Loop loop, object fileobj)
@cython.locals(watched=DescriptorWatch)
cdef DescriptorWatch _ours(Loop loop, object fileobj)
@cython.locals(entry=Callback)
cdef Callback _entry(Loop loop, object callback, tuple args)
@cython.locals(watched=DescriptorWatch)
cpdef object forget_writer(Loop loop, object fd, Callback writer)
@cython.locals(watched=DescriptorWatch)
cpdef object unwatch_reader(Loop loop, object fd)
@cython.locals(watched=DescriptorWatch)
cpdef object unwatch_writer(Loop loop, object fd)
cpdef object remove_reader(Loop loop, object fd)
cpdef object remove_writer(Loop loop, object fd)
