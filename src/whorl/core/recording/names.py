"""The names of the callbacks of a loop, in a recording."""

from __future__ import annotations

import functools
import types
from typing import Any

from whorl.core.callback import Callback, Runnable
from whorl.core.recording.recorder import Recorder
from whorl.core.recording.slot import LoopSlot

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

#: So many names of callbacks are kept at hand.
NAMES_KEPT = 4096
_PARTIAL = functools.partial
_COROUTINE = types.CoroutineType
_COROUTINE_NAME = vars(_COROUTINE)["__qualname__"]
_GENERATOR = types.GeneratorType
_METHOD = types.MethodType
_FUNCTION = types.FunctionType
_BUILTIN = types.BuiltinFunctionType
_COMPILED_FUNCTION: type = type(vars(Callback)["cancel"])
_NAMED: frozenset[type] = frozenset(
    {types.FunctionType, types.BuiltinFunctionType, _COMPILED_FUNCTION, type(str.join), type}
)

if not cython.compiled:
    from whorl.core.recording.steps import ask

    def key_of(called: Any) -> int:
        """Return what tells the callbacks of a function apart from others; uncompiled, all are looked at."""
        return 0

    def address_of(thing: Any) -> int:
        """Return the address of an object, as its key."""
        return id(thing)

    def type_key(thing: Any) -> int:
        """Return what tells the type of an object apart from others; uncompiled, all are looked at."""
        return 0

    def known_name(recorder: CallbackNames, key: int) -> int:
        """Return the name that was kept for a key, 0 if there is none."""
        return 0

    def keep_name(recorder: CallbackNames, key: int, name: int) -> None:
        """Keep a name for a key."""

    def forget_names(recorder: CallbackNames) -> None:
        """Forget the names that were kept."""
        recorder._last_key = 0


class CallbackNames(LoopSlot):
    """The part of a loop's recorder that finds the names of callbacks."""

    def __init__(self, recorder: Recorder, loop: Any, slot: int, number: int) -> None:
        LoopSlot.__init__(self, recorder, loop, slot, number)
        self._kept: dict[int, Any] = {}  # keeps alive what `_cache` knows by its address
        self._last_key = 0  # of the last callback, and its name
        self._last_name = 0
        if not cython.compiled:
            self._cache: Any = None

    def _name_of(self, entry: Runnable) -> int:
        """Return the id of the name of an entry that is no step of a task."""
        called: Any = entry
        if type(entry) is Callback or isinstance(entry, Callback):
            callback: Callback = entry
            called = callback._callback
            key = key_of(called)
        else:
            key = type_key(entry)
        if key and key == self._last_key:  # A program calls the same again and again.
            return self._last_name
        name = (known_name(self, key) if key else 0) or self._find_name(called)
        if name:
            self._last_key, self._last_name = key, name
        return name

    def _find_name(self, called: Any) -> int:
        """Return the name of a callable; of one without a name of its own, that of its class."""
        name = 0
        try:
            name = self._look_up_name(called)
        except Exception:  # There is no memory.
            pass
        return name

    def _look_up_name(self, called: Any) -> int:
        while type(called) is _PARTIAL:
            called = called.func
        if type(called) is _METHOD:
            called = called.__func__
        key = key_of(called)
        kept = called
        if isinstance(called, _BUILTIN):  # Methods that know their class are of a kind of it.
            kept = None  # its `__self__` would live on
        elif type(called) is _FUNCTION:
            kept = called.__code__
        elif type(called) not in _NAMED:
            kept = type(called)
        if not key:
            key = id(kept)
        return known_name(self, key) or self._new_name(key, kept, called if kept is None else kept)

    def _new_name(self, key: int, kept: Any, named: Any) -> int:
        if type(named) is types.CodeType:
            text = named.co_qualname
        else:
            text = named if isinstance(named, str) else named.__qualname__
        name = self._recorder.name_id(text if type(text) is str else "?")
        if len(self._kept) >= NAMES_KEPT:
            forget_names(self)
            self._kept.clear()
        if kept is not None:
            self._kept[id(kept)] = kept
        keep_name(self, key, name)
        return name

    def _coroutine_name(self, coro: Any) -> int:
        """Return the id of the name of a coroutine, 0 if there is no memory for it."""
        name = 0
        named: Any = None
        if type(coro) is _COROUTINE:
            named = ask(_COROUTINE_NAME, coro)  # Python audits each look at its code.
            name = known_name(self, address_of(named))
        return name or self._new_coroutine_name(coro, named)

    def _new_coroutine_name(self, coro: Any, named: Any) -> int:
        name = 0
        try:
            if type(coro) is _GENERATOR:
                named = coro.gi_code
            kind: Any = type(coro)
            if named is not None:
                key = address_of(named)
                name = known_name(self, key) or self._new_name(key, named, named)
            elif str(kind.__module__).startswith("_cython_"):  # a coroutine of a compiled module
                name = self._recorder.name_id(getattr(coro, "__qualname__", kind.__qualname__))
            else:
                name = self._recorder.name_id(kind.__qualname__)
        except Exception:  # There is no memory.
            pass
        return name
