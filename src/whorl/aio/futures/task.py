"""Whorl's tasks, compiled: for programs that ask for them, and on 3.13 without the GIL.

They behave as `asyncio.Task` does. Two things are faster. A task stands in the loop's ready queue itself,
without a callback around it. And to wake it takes one look at the future it waited for.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from asyncio import base_tasks, coroutines, futures, tasks
from contextvars import Context
from types import CoroutineType
from typing import Any

from whorl.aio.futures import states
from whorl.aio.futures.future import Future
from whorl.aio.futures.task_factory import task_of_factory
from whorl.core.callback import current_context
from whorl.core.loop.loop import Loop

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

UNSET = object()

# The place where the running Python keeps the current task: a dictionary, or functions only.
KEEPS_DICTIONARY = sys.version_info < (3, 14)
_current: Any = tasks._current_tasks if KEEPS_DICTIONARY else {}  # type: ignore[attr-defined, unused-ignore]
_enter: Any = tasks._enter_task
_leave: Any = tasks._leave_task

# asyncio's helpers for tasks of any kind.
_register: Any = tasks._register_task
_get_stack: Any = base_tasks._task_get_stack
_print_stack: Any = base_tasks._task_print_stack
_describe: Any = base_tasks._task_repr

# Other classes for which tasks wait in the same way.
_like_own: set[type] = set()

_tasks_made = 0
_registers_each = not cython.compiled  # whether each task registers with asyncio, for `all_tasks`

if not cython.compiled:
    # Compiled, all tasks stand in rings, for `asyncio.all_tasks`; uncompiled, each registers with asyncio.
    _rings: Any = None

    def begin_keeping() -> None:
        """Let loops keep their running tasks; uncompiled, the dictionary has them."""

    def keeps_task(loop: Any, task: Task) -> bool:
        """Return whether the loop keeps a task that begins a step, so that no dictionary changes."""
        return False

    def forgets_task(loop: Any, task: Task) -> bool:
        """Let the loop forget the task; return whether nobody has put it into the dictionary meanwhile."""
        return False

    def begin_rings() -> None:
        """Make rings without tasks."""

    def next_task_number() -> int:
        """Return the number of a new task."""
        global _tasks_made
        _tasks_made += 1
        return _tasks_made

    def enlist(task: Task) -> None:
        """Add a task to its ring."""

    def delist(task: Task) -> None:
        """Remove a task from its ring."""

    def show_as(task: Task, coro: Any, name: str | None) -> None:
        """Give a task its coroutine and its name, for which other threads may be asking."""
        task._coro = coro
        task._name = name

    def looked_up(task: Task) -> tuple[Any, str | None]:
        """Return the coroutine of a task, and its name if it has one yet."""
        return task._coro, task._name

    def listed() -> list[Any]:
        """Return all tasks in the rings."""
        return []

    def enter_context(context: Context) -> None:
        """Enter a context; uncompiled, contexts run functions (`_execute_uncompiled`)."""

    def exit_context(context: Context) -> None:
        """Leave a context again."""

    def send(coro: Any) -> Any:
        """Let a coroutine go on; return the object it waits for next."""
        return coro.send(None)

    def has_returned() -> bool:
        """Return whether the last `send` gave the return value; uncompiled, that is an exception."""
        return False


class Task(Future):
    """A coroutine that runs on a loop, and a future of its result (asyncio: ``asyncio.Task``).

    `eager_start` lets it run up to its first wait at once. Raises as `asyncio.Task` does. `isinstance`
    reports it as one.
    """

    def __init__(
        self,
        coro: Any,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        name: object = None,
        context: Context | None = None,
        eager_start: bool = False,
    ) -> None:
        super().__init__(loop=loop)
        if not cython.compiled:
            self._coro: Any = None
            self._member: Any = None
            self._name: str | None = None
        show_as(self, None, None)
        self._context: Context = None  # type: ignore[assignment]
        self._machine: Loop | None = None  # its loop, if that is one of Whorl's
        self._error: BaseException | None = None  # the exception to throw into the coroutine
        # The place of a task: the ready queue, the callbacks of the future it waits for (`_fut_waiter`), or
        # none while it runs. A future that is done moves it from the callbacks to the ready queue.
        self._fut_waiter: Any = None
        self._must_cancel = False
        self._num_cancels_requested = 0
        self._number = 0  # the number in its name, unless it was given one
        self._log_destroy_pending = False  # until it has begun
        self._check(coro, context)
        self._start(coro, name, context)
        if eager_start and self._loop.is_running():
            self._run_eagerly()
            if not cython.compiled:
                del self
        else:
            self._schedule_step()

    def _check(self, coro: Any, context: Any) -> None:
        if type(coro) is not CoroutineType and not coroutines.iscoroutine(coro):
            raise TypeError(f"a coroutine was expected, got {coro!r}")
        if context is not None and not isinstance(context, Context):
            raise TypeError(f"a contextvars.Context was expected, got {type(context).__name__}")

    def _start(self, coro: Any, name: Any, context: Context | None) -> None:
        """Set up a task that has not run yet."""
        loop = self._loop
        self._machine = loop if isinstance(loop, Loop) else None
        self._context = current_context() if context is None else context
        if name is None:
            self._number = next_task_number()
        elif type(name) is not str:
            name = str(name)
        show_as(self, coro, name)
        self._log_destroy_pending = True
        enlist(self)
        if _registers_each:
            _register(self)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return asyncio.Task if type(self) is Task else type(self)

    # Running.

    def _execute(self) -> None:
        error, context = self._take_error(), self._context
        enter_context(context)
        try:
            self._step(error)
        finally:
            exit_context(context)  # A step that initializes the task again gives it another one.

    def _resume(self) -> None:
        """Do what `_execute` does for loops that are not Whorl's, which handle contexts themselves."""
        self._step(self._take_error())

    def _wakeup(self, future: Any) -> None:
        """Go on, as a future that is not Whorl's is done and calls this."""
        try:
            future.result()
        except BaseException as error:
            self._step(error)
        else:
            self._step(None)
        finally:
            if not cython.compiled:
                del self

    def _take_error(self) -> BaseException | None:
        """Return the exception to throw into the coroutine, which was waiting."""
        waiter = self._fut_waiter
        if waiter is not None:
            future: Future = waiter
            failure = future._outcome("Result is not ready.")
            if failure is not None:
                future._restore_traceback(failure)
            return failure
        error = self._error
        self._error = None
        return error

    def _step(self, error: Any) -> None:
        """Let the coroutine go on, up to its next wait."""
        if self._status != states.PENDING:
            raise asyncio.InvalidStateError(f"_step(): already done: {self!r}, {error!r}")
        if self._must_cancel:
            if not isinstance(error, asyncio.CancelledError):
                error = self._make_cancelled_error()
            self._must_cancel = False
        self._fut_waiter = None
        loop = self._loop
        is_kept = keeps_task(loop, self)
        if is_kept:
            pass
        elif not KEEPS_DICTIONARY:
            _enter(loop, self)
        elif _current.setdefault(loop, self) is not self:
            _enter(loop, self)  # which raises
        try:
            self._advance(error)
        finally:
            if is_kept and forgets_task(loop, self):
                pass
            elif not KEEPS_DICTIONARY or _current.pop(loop, None) is not self:
                _leave(loop, self)
            if not cython.compiled:
                del self  # A traceback may keep this frame, which must not keep the task.

    def _advance(self, error: Any) -> None:
        coro = self._coro
        finished = failed = False
        result = None
        try:
            if error is None:
                result = send(coro)
                finished = has_returned()
            else:
                result = coro.throw(error)
        except StopIteration as stop:
            finished = True
            result = stop.value
        except asyncio.CancelledError as cancelled:
            self._cancelled_error = cancelled
            self._cancel(None)
            finished = failed = True
            if not cython.compiled:
                del self
        except (KeyboardInterrupt, SystemExit) as interrupt:
            self._fail(interrupt)
            raise
        except BaseException as failure:
            self._fail(failure)
            finished = failed = True
            if not cython.compiled:
                del self
        if finished:
            if failed:
                return
            if self._must_cancel:  # too late to throw it into the coroutine
                self._must_cancel = False
                self._cancel(self._message)
            else:
                self._finish(result)
        elif result is None:
            self._schedule_step()  # a bare `yield` waits for the next turn
        elif type(result) is Future or type(result) is Task or (_like_own and type(result) in _like_own):
            self._wait_for_own(result)
        else:
            self._wait_for(result)

    def _wait_for_own(self, future: Future) -> None:
        """Wait for one of Whorl's futures or tasks."""
        if future._loop is not self._loop or not future._asyncio_future_blocking or future is self:
            self._wait_for(future)
            return
        future._asyncio_future_blocking = False
        if self._machine is not None:
            future._append(self, None)
        else:
            future._append(self._wakeup, self._context)
        self._fut_waiter = future
        if self._must_cancel and future.cancel(self._message):
            self._must_cancel = False

    def _wait_for(self, awaited: Any) -> None:
        """Wait for any object that a coroutine has yielded, or throw an error about it into the coroutine."""
        blocking = getattr(awaited, "_asyncio_future_blocking", None)
        if blocking is None:
            if inspect.isgenerator(awaited):
                problem = "yield was used instead of yield from for generator "
                problem += f"in task {self!r} with {awaited!r}"
            else:
                problem = f"Task got bad yield: {awaited!r}"
        elif futures._get_loop(awaited) is not self._loop:  # type: ignore[attr-defined]
            problem = f"Task {self!r} got Future {awaited!r} attached to a different loop"
        elif not blocking:
            problem = f"yield was used instead of yield from in task {self!r} with {awaited!r}"
        elif awaited is self:
            problem = f"Task cannot await on itself: {self!r}"
        else:
            awaited._asyncio_future_blocking = False
            awaited.add_done_callback(self._wakeup, context=self._context)
            self._fut_waiter = awaited
            if self._must_cancel and awaited.cancel(msg=self._message):
                self._must_cancel = False
            return
        self._error = RuntimeError(problem)
        self._schedule_step()

    def _schedule_step(self) -> None:
        """Run in the next turn."""
        if self._machine is not None:
            self._machine._enqueue(self)
        else:
            self._loop.call_soon(self._resume, context=self._context)

    def _run_eagerly(self) -> None:
        """Run up to the first wait, inside the code that runs now."""
        loop = self._loop
        previous = _swap_current_task(loop, self)
        try:
            self._context.run(self._begin_eagerly)
        except BaseException:
            self._log_destroy_pending = False
            raise
        finally:
            _swap_current_task(loop, previous)
        if self._status != states.PENDING:
            show_as(self, None, self._name)
        if not cython.compiled:
            del self

    def _begin_eagerly(self) -> None:
        try:
            self._advance(None)
        finally:
            if not cython.compiled:
                del self

    # Cancelling.

    def cancel(self, msg: Any = None) -> bool:
        """Throw CancelledError into the coroutine soon; return whether it was still running."""
        self._is_unretrieved = False
        if self._status != states.PENDING:
            return False
        self._num_cancels_requested += 1
        waiter = self._fut_waiter
        if waiter is not None and waiter.cancel(msg=msg):
            return True
        self._must_cancel = True
        self._message = msg
        return True

    def cancelling(self) -> int:
        """Return the number of requests to cancel, less those that were taken back."""
        return self._num_cancels_requested

    def uncancel(self) -> int:
        """Take one request to cancel back; return the number that is left."""
        if self._num_cancels_requested > 0:
            self._num_cancels_requested -= 1
            if self._num_cancels_requested == 0 and TAKES_CANCEL_BACK:
                self._must_cancel = False
        return self._num_cancels_requested

    def set_result(self, result: Any) -> None:
        """Raise RuntimeError, always: the coroutine's return value is the result."""
        raise RuntimeError("Task does not support set_result operation")

    def set_exception(self, exception: Any) -> None:
        """Raise RuntimeError, always: the coroutine's exception is the exception."""
        raise RuntimeError("Task does not support set_exception operation")

    # Attributes.

    def get_coro(self) -> Any:
        """Return the coroutine that the task runs."""
        return self._coro

    def get_context(self) -> Context:
        """Return the context that the coroutine runs in."""
        return self._context

    def get_name(self) -> str:
        """Return the name of the task."""
        name = self._name
        if name is None:
            name = f"Task-{self._number}"
            show_as(self, self._coro, name)
        return name

    def set_name(self, value: object) -> None:
        """Set another name."""
        show_as(self, self._coro, str(value))

    def get_stack(self, *, limit: int | None = None) -> list[Any]:
        """Return the frames of its coroutine, or of the exception that ended it; oldest first."""
        frames: list[Any] = _get_stack(self, limit)
        return frames

    def print_stack(self, *, limit: int | None = None, file: Any = None) -> None:
        """Print the frames of `get_stack`, as a traceback."""
        _print_stack(self, limit, file)

    def __repr__(self) -> str:
        return str(_describe(self))

    def _end(self) -> None:
        delist(self)  # The exception handler may keep it; it never runs again.
        if self._status == states.PENDING and self._log_destroy_pending and self._loop is not None:
            context: dict[str, Any] = {"task": self, "message": "Task was destroyed but it is pending!"}
            if self._source_traceback:
                context["source_traceback"] = self._source_traceback
            self._loop.call_exception_handler(context)
        Future._end(self)

    def __dealloc__(self) -> None:
        delist(self)


# From 3.13 on, taking back the last request to cancel also takes back one that was not thrown yet.
TAKES_CANCEL_BACK = sys.version_info >= (3, 13)


@cython.binding(True)  # type: ignore[untyped-decorator]
def create_task(
    loop: Any, coro: Any, *, name: Any = UNSET, context: Any = UNSET, eager_start: Any = UNSET, **options: Any
) -> Any:
    """Return a Whorl task that runs a coroutine. Source: ``asyncio.loop.create_task``."""
    if loop._task_factory is not None:
        given = {"name": name, "context": context, "eager_start": eager_start}
        options.update((key, value) for key, value in given.items() if value is not UNSET)
        return task_of_factory(loop, coro, options)
    name = None if name is UNSET else name
    context = None if context is UNSET else context
    if not options and (eager_start is UNSET or not eager_start):
        return new_task(loop, coro, name, context)
    loop._check_closed()
    return Task(coro, loop=loop, name=name, context=context, eager_start=eager_start, **options)


def new_task(loop: Any, coro: Any, name: Any, context: Context | None) -> Task:
    """Return a task of one of Whorl's loops, made without the cost of a call by name."""
    machine: Loop = loop
    if machine._closed:
        machine._check_closed()
    if machine._debug or not cython.compiled:
        return Task(coro, loop=loop, name=name, context=context)
    task = Task.__new__(Task)
    task._loop = loop
    task._status = states.PENDING
    task._check(coro, context)
    task._start(coro, name, context)
    machine._enqueue(task)
    return task


def coroutine_and_name(task: Task) -> tuple[Any, str]:
    """Return the coroutine and the name of one of Whorl's tasks; any thread that holds the task may ask."""
    coro, name = looked_up(task)
    return coro, f"Task-{task._number}" if name is None else name


def wait_as_for_own(kind: type[Future]) -> None:
    """Let tasks wait for a subclass as for Whorl's classes, which it may not change in what that needs."""
    _like_own.add(kind)


def register_each_task() -> None:
    """Let each task made from now on register with asyncio itself."""
    global _registers_each
    _registers_each = True


def living_tasks() -> list[Any]:
    """Return all of Whorl's tasks that exist; compiled only."""
    return listed()


def _swap_current_task(loop: Any, task: Any) -> Any:
    """Make another task the current one; return the one before."""
    if not KEEPS_DICTIONARY:
        return tasks._swap_current_task(loop, task)  # type: ignore[attr-defined]
    previous = _current.pop(loop, None)
    if task is not None:
        _current[loop] = task
    return previous


begin_rings()
begin_keeping()

if not cython.compiled:

    def _execute_uncompiled(self: Task) -> None:
        context, step, error = self._context, [self._step], self._take_error()
        del self  # A traceback may keep this frame, which must not keep the task.
        context.run(step.pop(), error)

    Task._execute = _execute_uncompiled  # type: ignore[method-assign]
