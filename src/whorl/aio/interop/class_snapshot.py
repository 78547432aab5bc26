"""Snapshots that tell whether classes still have the methods that they had at first."""

from __future__ import annotations

from typing import Any

from whorl.aio.interop.first_use import MethodAtFirstUse

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if not cython.compiled:

    def version_of(cls: type) -> int:
        """Return 0: uncompiled, a class shows no version."""
        return 0

    def versions_of(owners: list[type]) -> int:
        """Return 0: uncompiled, a change of a class is not known without looking."""
        return 0


class ClassSnapshot:
    """Methods of classes, each as (class, name, method).

    A method may be one that is imported at its first use. It is compared without its import: a program that
    runs may have no files any more.
    """

    def __init__(self, methods: list[tuple[type, str, Any]]) -> None:
        self._methods = methods
        self._owners = list(dict.fromkeys(owner for owner, _, _ in methods))
        self._versions = 0  # the versions of the classes when they were last found to be the same

    def is_current(self) -> bool:
        """Return whether each class still has the method that is given with its name."""
        versions = versions_of(self._owners)
        if versions and versions == self._versions:
            return True
        for owner, name, method in self._methods:
            if type(method) is MethodAtFirstUse:
                if not method.stands_in(owner):
                    return False
            elif getattr(owner, name) is not method:
                return False
        self._versions = versions  # as they were before: another thread may be changing a class
        return True
