cimport cython

from whorl.aio.descriptors cimport DescriptorWatch, descriptor_of, ensure_no_transport, is_possible, new_watch, number_of
from whorl.core.callback cimport Callback
from whorl.core.loop cimport Loop
from whorl.core.poller cimport IOHandle, Poller


@cython.locals(handle=IOHandle)
cdef DescriptorWatch _find(Loop loop, object fileobj)
@cython.locals(watched=DescriptorWatch, entry=Callback)
cdef object _set(Loop loop, object fileobj, object callback, tuple args)
