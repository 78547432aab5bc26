"""Objects that all loops use: other threads count their references too, if there is no GIL."""

from __future__ import annotations

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if not cython.compiled:

    def is_counted_no_more(thing: object) -> bool:
        """Return False: uncompiled, all references are counted."""
        return False


def stop_counting(thing: object) -> bool:
    """Stop counting the references to an object that lives as long as the process; return whether it stopped.

    It does in CPython 3.13 without the GIL, in the thread that has made the object. With the GIL there is no
    reason to.
    """
    return is_counted_no_more(thing)
