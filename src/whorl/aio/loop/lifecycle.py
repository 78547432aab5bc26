"""Running a loop: the state it keeps for the asyncio face, and the steps around the turns, as in asyncio."""

from __future__ import annotations

import asyncio
import os
import sys
import warnings
from asyncio import constants, coroutines, events
from asyncio.base_events import _run_until_complete_cb  # type: ignore[attr-defined]
from asyncio.log import logger
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from whorl.aio.interop import handle_run_hook
from whorl.aio.interop.stock import snapshot_methods as snapshot_methods  # for the rooms below
from whorl.aio.loop import async_generators, clock, exception_handler
from whorl.aio.transports.fd_table import TransportTable
from whorl.core.callback import Callback
from whorl.core.loop.lifecycle import UNCHANGED
from whorl.core.loop.loop import Loop

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    import selectors
    from collections.abc import Generator

    from whorl.aio.loop_type import AnyLoop, Closeable, FdTable
    from whorl.core.cython_shim import binding
    from whorl.core.kernel.kernel import Kernel
    from whorl.core.pollers.contract import Poller
    from whorl.core.process.host import Host

    Result = TypeVar("Result")
else:
    try:
        from cython import binding
    except ImportError:
        from whorl.core.cython_shim import binding

# Bound once: each of these functions is called in every run. `events` is read each time: some programs put
# other functions there.
_get_hooks = sys.get_asyncgen_hooks
_set_hooks = sys.set_asyncgen_hooks
TIME = clock.TIME
CALL_AT: Any = clock.CALL_AT

COLLECTING = (False, True, "turn")  # the allowed values of `collect_writes`

_CALLER = 1 if cython.compiled else 2  # frames from a warning to the caller: compiled functions have none

_ask_for_debug_mode: Any = coroutines._is_debug_mode  # type: ignore[attr-defined]
_DEBUG_VARIABLE = os.fsencode("PYTHONASYNCIODEBUG")


def starts_in_debug_mode() -> bool:
    """Return whether loops are made in debug mode.

    asyncio reads a variable of the environment. If it is missing, that read costs an exception; the
    dictionary behind `os.environ` needs none.
    """
    variables = getattr(os.environ, "_data", None)
    ask: Any = coroutines._is_debug_mode  # type: ignore[attr-defined]
    if (
        ask is _ask_for_debug_mode
        and variables is not None
        and _DEBUG_VARIABLE not in variables
        and not sys.flags.dev_mode
    ):
        return False
    return bool(ask())


class Running(Loop):
    """The part of asyncio's loop that runs it, and the attributes of the whole loop."""

    def _set_up_running(
        self,
        poller: Poller | selectors.BaseSelector | str | None,
        kernel: Kernel | None,
        host: Host | None,
    ) -> None:
        self._set_up_loop(poller, kernel, host)
        # This is not a method of the loop: a reference to itself would keep it alive.
        self._clock_function: Callable[[], float] = self._kernel.seconds
        kind: Any = type(self)
        self._time_replaced = kind.time is not TIME or kind.call_at is not CALL_AT
        self.slow_callback_duration: float = 0.1  # seconds; debug mode logs callbacks that take longer
        self._clock_resolution = 1e-9
        self._exception_handler: exception_handler.Handler | None = None
        self._task_factory: Callable[..., Any] | None = None
        self._default_executor: Executor | None = None
        self._own_executor: Executor | None = None  # the default one, if the loop has made it
        self._executor_shutdown_called = False
        self._known_asyncgens: async_generators.GeneratorTable | None = None
        self._asyncgens_shutdown_called = False
        self._old_agen_hooks: Any = None
        self._saved_origin_depth: int | None = None
        self._transports: FdTable = TransportTable()  # those of sockets
        self._tls_scratch: memoryview | None = None  # the buffer that all TLS connections share
        self._failed_handshakes = 0  # of TLS, by an error of TLS's
        self._signal_handlers: dict[int, Callback] = {}
        self._children: set[Closeable] = set()  # those that run
        self._guards_posts = exception_handler.GUARDS_POSTS
        self.set_debug(starts_in_debug_mode())

    @property
    def _asyncgens(self) -> async_generators.GeneratorTable:
        """The asynchronous generators that are iterated and not finished."""
        if self._known_asyncgens is None:
            self._known_asyncgens = async_generators.GeneratorTable()
        return self._known_asyncgens

    def configure(
        self,
        *,
        block_signal: int | None = UNCHANGED,
        spin_ns: int = UNCHANGED,
        collect_writes: bool | Literal["turn"] = UNCHANGED,
    ) -> None:
        """Set how the loop sleeps and writes; an omitted option keeps its value.

        `block_signal` and `spin_ns` are those of `whorl.Loop.configure`, and raise the same errors.

        `collect_writes`: False, the default: a write leaves when its callback ends at the latest. True or
        "turn", which mean the same: small writes to TCP and TLS connections wait while other callbacks of the
        turn wait to run. They wait a millisecond at most, and leave together (`whorl.server_loop`).
        Raises ValueError for any other `collect_writes`.
        """
        if collect_writes is not UNCHANGED and collect_writes not in COLLECTING:
            raise ValueError(f"collect_writes is True, False or 'turn', not {collect_writes!r}")
        Loop.configure(self, block_signal=block_signal, spin_ns=spin_ns)
        if collect_writes is not UNCHANGED:
            self._held.collects = bool(collect_writes)

    def run_forever(self) -> None:
        """Turn until `stop` is called.

        Source: ``asyncio.loop.run_forever``.
        """
        face: Any = self
        if (self._thread or events._get_running_loop() is not None) and face._may_run_inside():
            face._run_forever_inside()
            return
        self._check_may_run()
        try:
            self._run_forever_setup()
            if getattr(face._run_once, "__func__", None) is run_once:
                self._run_turns()
            else:
                self._run_turns_of_others()
        finally:
            try:
                self._run_forever_cleanup()
            except BaseException:  # An interrupt: it must not keep this loop, or another one, from running.
                Running._end_run(self)  # To record that the loop runs no more needs no memory.
                raise

    def _run_turns_of_others(self) -> None:
        """Run turns by a method that a subclass or a test has put in the place of Whorl's."""
        face: Any = self
        while True:
            face._run_once()
            if self._stopping:
                break

    def run_until_complete(self, future: Generator[Any, None, Result] | Awaitable[Result]) -> Result:
        """Run until the future, or the task made of a coroutine, is done; return its result.

        Raises RuntimeError if the loop was stopped before. Source: ``asyncio.loop.run_until_complete``.
        """
        if self._closed:
            self._check_closed()
        if self._thread or events._get_running_loop() is not None:
            face: Any = self
            if face._may_run_inside():
                return face._run_until_complete_inside(future)  # type: ignore[no-any-return]
            self._check_running()
        is_ours = type(future) is CoroutineType or not asyncio.futures.isfuture(future)
        awaited: Any = self._ensure_future(future)
        if is_ours:
            # The caller gets an exception, so the destroyed task need not be reported.
            awaited._log_destroy_pending = False
        try:
            awaited.add_done_callback(_run_until_complete_cb)
            self.run_forever()
        except BaseException:
            if is_ours and awaited.done() and not awaited.cancelled():
                awaited.exception()  # The caller gets it from the loop; the task need not complain.
            raise
        finally:
            awaited.remove_done_callback(_run_until_complete_cb)
        if not awaited.done():
            raise RuntimeError("Event loop stopped before Future completed.")
        result: Result = awaited.result()
        return result

    def _ensure_future(self, future: Any) -> Any:
        """Return the result of `asyncio.ensure_future`, in fewer steps for the usual argument."""
        loop: Any = self
        if type(future) is CoroutineType:
            try:
                return loop.create_task(future)
            except RuntimeError:
                future.close()
                raise
        return asyncio.tasks.ensure_future(future, loop=loop)

    def _check_running(self) -> None:
        """Raise RuntimeError if the loop runs, or another one in this thread."""
        if self._thread:
            raise RuntimeError("This event loop is already running")
        if events._get_running_loop() is not None:
            raise RuntimeError("Cannot run the event loop while another loop is running")

    def _check_may_run(self) -> None:
        """Raise RuntimeError if the loop is closed or runs already, or if another one runs in this thread."""
        if events._get_running_loop() is not None:
            self._check_closed()
            self._check_running()
        Loop._check_may_run(self)

    def _begin_run(self) -> None:
        """Prepare the first turn of a run. If this raises, the loop does not run."""
        self._check_may_run()
        try:
            kind: Any = type(self)
            if self._time_replaced or kind.time is not TIME or kind.call_at is not CALL_AT:
                clock.refresh_overrides(self)  # type: ignore[arg-type]  # each is an EventLoop
            self._run_hook = handle_run_hook.patched_run()
            Loop._begin_run(self)
            set_running(self)  # type: ignore[arg-type]
        except BaseException:
            Running._end_run(self)
            raise

    def _end_run(self) -> None:
        """Clean up after the last turn of a run. If this raises, a second call does the rest."""
        self._thread = 0
        self._stopping = False
        unset_running(self)  # type: ignore[arg-type]
        Loop._end_run(self)

    def _run_forever_setup(self) -> None:
        """Do the same by the name that asyncio has for it since 3.13."""
        self._begin_run()

    def _run_forever_cleanup(self) -> None:
        """Do the same by the name that asyncio has for it since 3.13."""
        self._end_run()

    def set_debug(self, enabled: bool) -> None:
        """Turn debug mode on or off.

        Source: ``asyncio.loop.set_debug``.
        """
        self._debug = bool(enabled)
        if self._thread:
            self.call_soon_threadsafe(track_origins, self, self._debug)

    def _count_failed_handshakes(self) -> int:
        """Return the number of TLS handshakes that failed."""
        return self._failed_handshakes

    def close(self) -> None:
        """Close the loop and release everything it holds; scheduled callbacks are dropped.

        Raises RuntimeError if the loop runs. Closing again does nothing. Open handles of the machine are
        closed, with a ResourceWarning. Source: ``asyncio.loop.close``.
        """
        if self._thread:
            raise RuntimeError("Cannot close a running event loop")
        if self._closed:
            return
        if self._debug:
            logger.debug("Close %r", self)
        face: Any = self
        left_open = self.walk()
        self._close_machine()
        self._executor_shutdown_called = True
        executor = self._default_executor
        self._default_executor = self._own_executor = None
        lookups = self._shared.pop("names", None)
        if lookups is not None:
            lookups.end()
        if executor is not None:
            executor.shutdown(wait=False)
        if self._signal_handlers:
            face._remove_all_signal_handlers()
        if self._children:
            face._close_children()
        # The poller is closed by now, so this only closes descriptors: nothing that a forked child shares
        # with its parent is changed.
        for handle in left_open:
            handle.close()
        for handle in left_open:
            warnings.warn(f"unclosed handle {handle!r}", ResourceWarning, _CALLER, handle)

    def _open_handles(self) -> list[Any]:
        """Return the open handles, transports too; some may be there twice."""
        return Loop._open_handles(self) + list(self._transports.values())

    def __del__(self) -> None:
        if getattr(self, "_poller", None) is None or self._closed:
            return  # The loop was never initialized, or it is closed.
        if warnings is None:
            return  # The interpreter is ending, and the names of this module are gone.
        warnings.warn(f"unclosed event loop {self!r}", ResourceWarning, source=self, stacklevel=1)
        if not self._thread:
            self.close()


@binding(True)
def run_once(loop: AnyLoop) -> None:
    """Run one turn, for programs that drive a loop by asyncio's private names.

    The turn sleeps if there is nothing to do. Raises RuntimeError inside a turn: a nested run takes care of
    what that has half done, and this does not.
    """
    loop._step(True)


def set_running(loop: AnyLoop) -> None:
    """Make this the running loop of the thread."""
    if loop._debug:
        track_origins(loop, True)
    loop._old_agen_hooks = _get_hooks()
    _set_hooks(loop._asyncgen_firstiter_hook, loop._asyncgen_finalizer_hook)
    events._set_running_loop(loop)


def unset_running(loop: AnyLoop) -> None:
    """Undo `set_running`, also if that was interrupted."""
    events._set_running_loop(None)
    if loop._saved_origin_depth is not None:
        track_origins(loop, False)
    if loop._old_agen_hooks is not None:
        firstiter, finalizer = loop._old_agen_hooks
        _set_hooks(firstiter, finalizer)
        loop._old_agen_hooks = None


def track_origins(loop: AnyLoop, enabled: bool) -> None:
    """Begin, or stop, recording the origin of the coroutines that are made in this thread."""
    if enabled and loop._saved_origin_depth is None:
        loop._saved_origin_depth = sys.get_coroutine_origin_tracking_depth()
        sys.set_coroutine_origin_tracking_depth(constants.DEBUG_STACK_DEPTH)
    elif not enabled and loop._saved_origin_depth is not None:
        sys.set_coroutine_origin_tracking_depth(loop._saved_origin_depth)
        loop._saved_origin_depth = None
