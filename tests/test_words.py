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

# The private word, and those that took its place.
REPLACED = {
    "ACCEPT_REST_NS": "ACCEPT_RETRY_DELAY_NS",
    "_arrivals": "_inbox",
    "_arrive": "_post_from_any_thread",
    "_ask": "_arm",
    "_ask_again": "_rearm",
    "ask_for_events": "call_process_events",
    "_ask_openssl": "_call_openssl",
    "_asked": "_given_when",
    "asyncgen_began": "asyncgen_firstiter",
    "asyncgen_dropped": "asyncgen_finalizer",
    "attempt_failed": "report_pending_error",
    "_awaited": "_has_waiting_thread",
    "_begin_rest": "_retry_later",
    "_belong_to": "_register_with_server",
    "_beyond_this_file": "_program_traceback",
    "_by_records": "_record_reader",
    "_callback_held": "callback_ended",
    "_childs": "_child_ends",
    "Clients": "ConnectionSet",
    "close_childs": "close_child_ends",
    "Collector": "HeldWrites",
    "_connecting": "_connect_request",
    "cut_room": "take_bytes",
    "DATAGRAM_ROOM": "DATAGRAM_SIZE",
    "DatagramNames": "DatagramPrivateAttributes",
    "_Detour": "_ProxyPoller",
    "_disown": "_release_socket",
    "displace": "detach_all",
    "_emptied": "_inbox_swap",
    "_end_rest": "_retry",
    "ENDED": "EOF",
    "_ended_elsewhere": "_exit_seen_by_thread",
    "_entry_failed": "_report_callback_error",
    "_face": "_event_loop",
    "_fed": "_is_pending",
    "follow_patch": "follow_patched_monotonic",
    "Follower": "ChainedFuture",
    "_give_up_accepted": "_close_accepted",
    "_GIVEN": "_RELEASED_TRANSPORT",
    "_Given": "_ReleasedTransport",
    "_go_on": "_wake, _schedule_step, _continue_state",
    "_goes_on_after": "_should_retry",
    "GONE": "CONNECTION_ERRORS",
    "Grave": "Zombies",
    "graves": "zombies",
    "has_own": "overrides_method",
    "has_own_methods": "overrides_methods",
    "_HEAD": "_EVENT_HEADER",
    "_hidden_opened": "_internal_handle_opened",
    "_hide": "_mark_internal",
    "_holding": "_held",
    "_home_thread": "_last_run_thread",
    "_introduce": "_schedule_connection_made",
    "is_abandoned": "is_stale",
    "_is_at_home": "_is_in_creating_process",
    "is_awaited": "has_waiting_thread",
    "_is_by_records": "_can_read_records",
    "is_kept_by_one": "has_one_other_reference",
    "_is_layered": "_protocol_is_tls",
    "_is_owed": "_is_started",
    "_is_own": "_transport_is_ours",
    "_is_own_entry": "_queues_itself",
    "_is_soon": "is_late",
    "_is_told": "_app_is_connected",
    "is_unshared": "has_single_reference",
    "Job": "ExecutorJob",
    "JUST_WOKEN": "SKIPS_ONE_POLL",
    "Pace": "CpuModel",
    "Quality": "LinkProfile",
    "rota": "run_order",
    "watch_silence": "probe_later",
    "WOKEN_BY_THREAD": "SKIPS_ONE_POLL",
    "_keepers": "_keep_alive_count",
    "know_methods": "snapshot_methods",
    "_known": "_extra_dict, _references, _events_names",
    "knows_submit": "is_stock_submit",
    "_lane": "_next_queue",
    "lay_aside": "freelist_put",
    "_layer": "_tls_protocol",
    "_leave_behind": "_seek_past",
    "_leave_seen": "_keep_other_direction",
    "_leave_server": "_unregister_from_server",
    "leave_to_itself": "detach",
    "leaves_room": "empties_buffer",
    "_let_go": "_close_handle",
    "_let_go_of_loop": "_drop_loop_reference",
    "Life": "HandleState",
    "_life": "_handle_state",
    "LIFE_OPEN": "HANDLE_OPEN",
    "_look": "_check_exit, _start_stat",
    "_look_again": "_overrides_changed",
    "look_again": "refresh_overrides",
    "_looked": "_stat_done",
    "LoopBase": "LoopState",
    "LoopBatches": "LoopExecution",
    "LoopFigures": "LoopState",
    "LoopLife": "LoopLifecycle",
    "_lose": "_schedule_connection_lost",
    "lose_track": "stop",
    "MADE": "CON_MADE",
    "_make_room": "_release_fd",
    "make_room": "reserve_capacity, set_freelist_size, release_fd_for_transport",
    "makes_tasks_plainly": "can_make_stock_task",
    "_may_rest": "_may_skip_polls",
    "_may_wait": "_hold_first",
    "MOST_BY_RECORDS": "MOST_READ_BY_RECORDS",
    "move_arrivals": "swap_inbox",
    "_moved_apart": "_moves_above",
    "new_room": "new_buffer",
    "NONE_LEFT": "WOULD_BLOCK",
    "_note": "_parse_events",
    "_note_idle": "_count_idle_event",
    "note_received": "update_drained",
    "_noted": "_kernel_events",
    "NOTHING": "INIT",
    "NOTHING_THERE": "WOULD_BLOCK",
    "Noticing": "OverrideObserver",
    "_occupy": "_reserve_fds",
    "owe": "push_completed",
    "_owed": "_completed",
    "_owes_failure": "_has_failed_write",
    "_own": "_loop_selector",
    "_own_address": "_last_sockaddr",
    "own_method": "method_of_class",
    "own_methods": "socket_overrides",
    "_own_name": "_sockname, _last_sockname",
    "Owner": "AbstractLoop",
    "OwnTasksEventLoop": "CompiledTasksEventLoop",
    "_parked": "_is_idle_watch",
    "parks": "can_keep_idle_watches",
    "pass_by": "scan",
    "PassingCalls": "FdPassingCalls",
    "_pay": "_run_completed",
    "PipeNames": "PipePrivateAttributes",
    "_plain_answer": "_numeric_answer",
    "PLAIN_ANSWERS": "NUMERIC_ANSWERS",
    "_PLAIN_FLAGS": "_NUMERIC_FLAGS",
    "quick_factory": "fast_server_protocol_factory",
    "quick_to_call": "bind_compiled_methods",
    "QUIET_POLLS": "EMPTY_POLLS_BEFORE_SKIP",
    "read_own": "read_class_clock",
    "_reads": "_should_resume_reading",
    "_reap_alone": "_reap_in_thread",
    "RecordWalk": "RecordScanner",
    "_require": "check_result",
    "_rest": "_retry_timer",
    "rest_of_room": "buffer_tail",
    "_ROOM": "_ANCILLARY_SIZE",
    "_room": "_write_ready_fut, _buffer_free, _buffer, _capacity",
    "room_for_events": "event_buffer",
    "room_of": "bytes_memory",
    "_room_when_empty": "_empty_buffer_size",
    "_rooms": "_sizes",
    "_run_watched": "_run_instrumented",
    "_runner": "_event_loop, _running_thread, _run_hook",
    "say_failed": "report_failed_connection",
    "_say_goodbye": "_send_close_notify",
    "says_nothing": "are_default_options",
    "_send_held": "_flush_held",
    "_serve": "_make_attempt, _worker",
    "_set_up_life": "_set_up_lifecycle",
    "SHORTEST_AGAIN": "SHORTEST_REUSED",
    "_shutting": "_shutdown_request",
    "SocketNames": "SocketPrivateAttributes",
    "_spare": "_freelist, _ready_swap, _previous_wait",
    "SPARE_CALLBACKS": "CALLBACK_FREELIST_SIZE",
    "_spare_pending": "_pending_swap",
    "SPARE_WRITES": "WRITE_FREELIST_SIZE",
    "_spares": "_freelist_size",
    "stand_in": "proto",
    "StandIn": "_SendfileProtocol",
    "start_job": "submit_job",
    "still_raised": "reraise_pending",
    "_SYSTEMS_OWN": "_STDLIB_GETADDRINFO",
    "_take_a_rest": "_pause_accepting",
    "_take_arrivals": "_drain_inbox",
    "_take_turn": "_run_as_entry",
    "take_up": "freelist_pop",
    "take_up_guarded": "freelist_pop_guarded",
    "takes_jobs": "is_stock_executor",
    "TasksAndMore": "TaskRegistry",
    "_tell": "_notify_probe",
    "_tell_done": "_finish_shutdown",
    "_tell_error": "_report_error",
    "tell_protocol": "call_pause_or_resume",
    "_tell_reader": "_end_reading",
    "Telling": "ObservedDescriptor",
    "TLSLayer": "TLSEngine",
    "TLSOutput": "TLSWritePath",
    "Told": "_app_state",
    "_told": "_app_state",
    "_took": "_handle_read",
    "Unaware": "NoObserver",
    "Unchanged": "ClassSnapshot",
    "_unfeed": "_unqueue_pending",
    "_use": "_set_protocol",
    "_use_other": "_use_replaced_clock",
    "use_own": "use_kernel_clock",
    "Wait": "ReusableFuture",
    "_wait_with": "_set_empty_waiter",
    "_watched_entry": "_current_entry",
    "_Wish": "_EndpointOptions",
    "without_asking": "answer_if_numeric",
    "WritePipeNames": "WritePipePrivateAttributes",
    "WriterNames": "WriterPrivateAttributes",
}
# The public names among the old words, by the file that has them.
ALIASES = {
    "whorl/core/__init__.py": {"Life"},
    "whorl/inspector/__init__.py": {"Collector"},
    "whorl/inspector/prometheus.py": {"Collector"},
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
    banned = set(REPLACED) - ALIASES.get(str(path.relative_to(sources.SOURCES)), set())
    assert {name: REPLACED[name] for name in names_in(path) & banned} == {}


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
