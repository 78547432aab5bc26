"""Words that do not come back: names with a private meaning, and tests that begin with a pronoun."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

from build_tools import sources

pytestmark = pytest.mark.text

# The private word, and the one that took its place.
REPLACED = {
    "_arrivals": "_inbox",
    "_arrive": "_post_from_any_thread",
    "asyncgen_began": "asyncgen_firstiter",
    "asyncgen_dropped": "asyncgen_finalizer",
    "_belong_to": "_register_with_server",
    "Clients": "ConnectionSet",
    "Collector": "WriteCoalescer",
    "cut_room": "take_bytes",
    "_disown": "_release_socket",
    "displace": "detach_all",
    "_ends_without_turns": "_complete_shutdown_inline",
    "_entry_failed": "_report_callback_error",
    "follow_patch": "follow_patched_monotonic",
    "Follower": "ChainedFuture",
    "_Given": "_ReleasedTransport",
    "has_own": "overrides_method",
    "_hidden_opened": "_internal_handle_opened",
    "_hide": "_mark_internal",
    "_home_thread": "_last_run_thread",
    "in_place_of": "fallback_reason",
    "_introduce": "_schedule_connection_made",
    "is_abandoned": "is_stale",
    "_is_at_home": "_is_in_creating_process",
    "is_kept_by_one": "has_one_other_reference",
    "is_unshared": "has_single_reference",
    "Job": "ExecutorJob",
    "JUST_WOKEN": "WOKEN_BY_THREAD",
    "know_methods": "snapshot_methods",
    "knows_submit": "is_stock_submit",
    "lay_aside": "freelist_put",
    "_leave_seen": "_keep_other_direction",
    "_leave_server": "_unregister_from_server",
    "_let_go_of_loop": "_drop_loop_reference",
    "_look_again": "_overrides_changed",
    "look_again": "refresh_overrides",
    "LoopBase": "LoopState",
    "LoopBatches": "LoopExecution",
    "LoopFigures": "LoopState",
    "LoopLife": "LoopLifecycle",
    "move_arrivals": "swap_inbox",
    "new_room": "new_buffer",
    "_note_idle": "_count_idle_event",
    "note_received": "update_drained",
    "Noticing": "OverrideObserver",
    "own_method": "method_of_class",
    "own_methods": "socket_overrides",
    "OwnTasksEventLoop": "CompiledTasksEventLoop",
    "PassingCalls": "FdPassingCalls",
    "quick_factory": "fast_server_protocol_factory",
    "quick_to_call": "bind_compiled_methods",
    "QUIET_POLLS": "EMPTY_POLLS_BEFORE_SKIP",
    "RecordWalk": "RecordScanner",
    "rest_of_room": "buffer_tail",
    "_run_watched": "_run_instrumented",
    "_send_held": "_flush_held",
    "start_job": "submit_job",
    "still_raised": "reraise_pending",
    "_take_arrivals": "_drain_inbox",
    "take_up": "freelist_pop",
    "take_up_guarded": "freelist_pop_guarded",
    "takes_jobs": "is_stock_executor",
    "TasksAndMore": "TaskRegistry",
    "tell_protocol": "call_pause_or_resume",
    "Telling": "ObservedDescriptor",
    "TLSLayer": "TLSEngine",
    "TLSOutput": "TLSWritePath",
    "Told": "AppProtocolState",
    "Unaware": "NoObserver",
    "Unchanged": "ClassSnapshot",
    "_unfeed": "_unqueue_pending",
    "use_own": "use_kernel_clock",
    "Wait": "ReusableFuture",
    "_watched_entry": "_current_entry",
    "_Wish": "_EndpointOptions",
    "Owner": "AbstractLoop",
}
# The first word of a test's name that names no subject, by which `pytest -k` could find the test.
NO_SUBJECT = set(
    "how it nobody none nothing somebody something that there they what whatever when where which whichever "
    "who whoever whose anybody anything everybody everything".split()
)
TESTS = sorted((sources.ROOT / "tests").rglob("*.py"))
PATHS = sorted(path for kind in ("py", "pxd", "h") for path in sources.SOURCES.rglob(f"*.{kind}"))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.relative_to(sources.SOURCES)))
def test_replaced_words_do_not_come_back(path: Path) -> None:
    assert {name: REPLACED[name] for name in names_in(path) & set(REPLACED)} == {}


def test_names_of_tests_begin_with_their_subject() -> None:
    found = [(str(path), name) for path in TESTS for name in names_of_tests(path)]
    assert len(found) > 1000
    assert [test for test in found if test[1].split("_")[1] in NO_SUBJECT] == []


def names_of_tests(path: Path) -> list[str]:
    """Return the names of all test functions and test methods of a file."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [function.name for function in functions if function.name.startswith("test_")]


def names_in(path: Path) -> set[str]:
    """Return the names in the code of a file; in declarations and headers, every word."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return set(re.findall(r"\w+", text))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.string for token in tokens if token.type == tokenize.NAME}
