"""Gives CPython's tests of futures and tasks to Whorl's own classes too."""

import asyncio
import types
import unittest
from typing import Any

from whorl.aio.futures.future import Future
from whorl.aio.futures.task import Task
from whorl.aio.runners.compiled_tasks_loop import CompiledTasksEventLoop

# A task of ours stands in the ready queue itself: it does not ask for a `call_soon` that was replaced.
NEVER_CALLS_SOON = {"test_error_in_call_soon": None}

WITH_SETTERS = {"OwnTask_OwnFuture_Tests"}  # where a task is a future of the same kind


def add_to(module: types.ModuleType) -> None:
    """Add classes of tests to a module that has abstract ones for futures or tasks."""
    CompiledTasksEventLoop().close()  # From now on `asyncio.all_tasks` sees our tasks.
    name = module.__name__.rpartition(".")[2]
    if name == "test_futures":
        _add_futures(module)
    elif name == "test_futures2":
        cases = (module.FutureTests, unittest.IsolatedAsyncioTestCase)
        module.OwnFutureTests = type("OwnFutureTests", cases, {"__module__": module.__name__, "cls": Task})
    elif name == "test_tasks":
        _add_tasks(module)
    elif name == "test_eager_task_factory":
        _add(module, "OwnEagerTests", (module.EagerTaskFactoryLoopTests,), Task=Task)


def _add_futures(module: Any) -> None:
    for prefix, kind in (("Own", Future), ("OwnSub", _derived(Future))):
        _add(module, f"{prefix}FutureTests", (module.BaseFutureTests,), cls=kind)
        callbacks = (module.BaseFutureDoneCallbackTests,)

        def new_future(self: Any, kind: Any = kind) -> Any:
            return kind(loop=self.loop)

        _add(module, f"{prefix}FutureDoneCallbackTests", callbacks, _new_future=new_future)
    inheritance = (module.BaseFutureInheritanceTests,)
    _add(module, "OwnFutureInheritanceTests", inheritance, _get_future_cls=lambda _: Future)


def _add_tasks(module: Any) -> None:
    pairs = {
        "OwnTask_OwnFuture_Tests": (Task, Future),
        "OwnTask_CFuture_Tests": (Task, asyncio.Future),
        "CTask_OwnFuture_Tests": (asyncio.Task, Future),
        "OwnTask_OwnFuture_SubclassTests": (_derived(Task), _derived(Future)),
    }
    for name, (task, future) in pairs.items():
        _add(
            module,
            name,
            (*([module.SetMethodsTest] if name in WITH_SETTERS else []), module.BaseTaskTests),
            Task=task,
            Future=future,
            all_tasks=staticmethod(asyncio.all_tasks),
            current_task=staticmethod(asyncio.current_task),
            **NEVER_CALLS_SOON if task is not asyncio.Task else {},
        )


def _derived(kind: Any) -> Any:
    """Return a class derived in Python, of the same name: the tests look at it."""
    return type(kind.__name__, (kind,), {})


def _add(module: Any, name: str, bases: tuple[Any, ...], **attributes: Any) -> None:
    attributes["__module__"] = module.__name__
    setattr(module, name, type(name, (*bases, module.test_utils.TestCase), attributes))
