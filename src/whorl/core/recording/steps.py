"""The steps of tasks: which callback is one, and how to ask the tasks of a class.

The step of a task is told by its callback, without a task factory. asyncio's tasks in C queue one of two
callbacks, both of which know the task. Whorl's own tasks stand in the queue themselves. `know_tasks` says
what the classes of tasks are.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from whorl.core.callback import Callback, Runnable

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if not cython.compiled:
    _step_types: list[Any] = []
    _step_methods: list[Any] = []

    def learn_step(step: Any, task: Any) -> bool:
        """Learn which type of callback begins a task, from one and its task."""
        if getattr(step, "__self__", None) is not task:
            return False
        _step_types.append(type(step))
        return True

    def learn_method(function: Any) -> None:
        """Learn a function whose bound methods step the task that they are bound to."""
        _step_methods.append(function)

    def ask(descriptor: Any, task: Any) -> Any:
        """Ask a task by a descriptor or a function; return None if that fails, as nobody could be told."""
        get = getattr(descriptor, "__get__", None) if type(descriptor) is not types.FunctionType else None
        try:
            return descriptor(task) if get is None else get(task)
        except Exception:
            return None

    def may_be_step(entry: Runnable) -> bool:
        """Return whether an entry may be the step of a task."""
        return True

    def find_stepped(called: Any) -> Any:
        """Return the task that a callback steps, or None."""
        kind = type(called)
        if kind in _step_types:
            return called.__self__
        if kind is types.BuiltinFunctionType and called.__name__ == "task_wakeup":
            return called.__self__
        if kind is types.MethodType and called.__func__ in _step_methods:
            return called.__self__
        return None

    def find_stepped_by(entry: Callback) -> Any:
        """Return the task that a callback of the queue steps, or None."""
        return find_stepped(entry._callback)


class TaskKind:
    """Tell how to ask the tasks of one class; no code of the program's runs.

    `name_of` is a function. The others are functions or descriptors: of the coroutine, of the state as
    asyncio writes it, and of the exception or None.
    """

    def __init__(
        self,
        name_of: Callable[[Any], str],
        coro_of: Any,
        state_of: Any,
        failure_of: Any,
    ) -> None:
        self.name_of: Any = name_of
        self.coro_of: Any = coro_of
        self.state_of: Any = state_of
        self.failure_of: Any = failure_of


_kinds: dict[type, TaskKind] = {}  # by the class of the tasks; none is ever taken out


def know_tasks(
    cls: type,
    kind: TaskKind,
    *,
    step: object = None,
    step_of: object = None,
    methods: tuple[Any, ...] = (),
) -> bool:
    """Let recorders know the tasks of a class and of its subclasses; return whether they will.

    `step` is a callback that begins the task `step_of`; its class stands for all such callbacks. `methods`
    are functions whose bound methods step the task that they are bound to. A task may also stand in the queue
    of the loop itself.
    """
    if cls in _kinds:
        return True
    if step is not None and not learn_step(step, step_of):
        return False
    for method in methods:
        learn_method(method)
    _kinds[cls] = kind
    return True


def stepped_by(called: Any) -> Any:
    """Return the task that a callback steps, or None."""
    return find_stepped(called)


def stepped_by_entry(entry: Callback) -> Any:
    """Return the task that a callback of the queue steps, or None."""
    return find_stepped_by(entry)


def kind_for(cls: Any) -> TaskKind | None:
    """Return how to ask the tasks of a class, None for another class."""
    for base in cls.__mro__:
        if base in _kinds:
            return _kinds[base]
    return None
