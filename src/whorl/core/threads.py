"""Several threads at once, without the GIL: barriers, locks, numbers. With the GIL, they cost nothing.

A loop belongs to the thread that runs it. Other threads reach it by posts and by cancelling. In a Python
without the GIL these alone pass a lock or a barrier. A number that they read or write without a lock is a
shared one (`shared_flag`, `shared_int`): C then makes each access one step, and keeps the order of steps.
A number that its own thread writes, and others look at now and then, is a seen one (`seen_number`). Each
access is one instruction then, in no order.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if not cython.compiled:
    HAS_GIL = True  # Uncompiled, each attribute, list and dictionary has the interpreter's own lock.

    def barrier() -> None:
        """Let other threads see what this one has stored, before it looks at anything else."""
