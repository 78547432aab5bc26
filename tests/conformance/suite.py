"""The modules of CPython's test.test_asyncio that say how any event loop behaves."""

from importlib.util import find_spec

PACKAGE = "test.test_asyncio"

MODULES = (
    "test_base_events",
    "test_buffered_proto",
    "test_context",
    "test_eager_task_factory",
    "test_events",
    "test_futures",
    "test_futures2",
    "test_locks",
    "test_pep492",
    "test_queues",
    "test_runners",
    "test_server",
    "test_sock_lowlevel",
    "test_streams",
    "test_taskgroups",
    "test_tasks",
    "test_threads",
    "test_timeouts",
    "test_unix_events",
    "test_waitfor",
)


def is_installed() -> bool:
    """Tell whether this Python came with CPython's own tests; distributions often leave them out."""
    try:
        return find_spec(PACKAGE) is not None
    except ModuleNotFoundError:
        return False


def has_module(name: str) -> bool:
    """Tell whether this Python's suite has the module; later Pythons have more of them."""
    return find_spec(f"{PACKAGE}.{name}") is not None


def short_id(test_id: str) -> str:
    """Shorten a unittest id to ``test_tasks.CTaskTests.test_gather``."""
    return test_id.removeprefix(f"{PACKAGE}.")
