"""Whether classes still have the methods that they had when they were first looked at."""

from __future__ import annotations

from typing import Any

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if not cython.compiled:

    def version_of(cls: type) -> int:
        """Return 0: uncompiled, a class shows no version."""
        return 0

    def versions_of(methods: list[tuple[type, str, Any]]) -> int:
        """0: uncompiled, nobody can tell whether a class was changed without looking."""
        return 0


class ClassSnapshot:
    """Methods of classes, each as (class, name, method); those of one class stand together."""

    __slots__ = ("_methods", "_versions")

    def __init__(self, methods: list[tuple[type, str, Any]]) -> None:
        self._methods = methods
        self._versions = 0  # the versions of the classes when they were last found to be the same

    def is_current(self) -> bool:
        """Return whether each class still has the method that is given with its name."""
        versions = versions_of(self._methods)
        if versions and versions == self._versions:
            return True
        for owner, name, method in self._methods:
            if getattr(owner, name) is not method:
                return False
        self._versions = versions_of(self._methods)
        return True
