"""The loop itself, its callbacks, futures and tasks; connections and pipes with all their methods."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.world import World

EVENTS = ("made", "data", "eof", "pause", "resume", "lost", "buffer")
KINDS = ("unix", "tcp", "unix", "tcp", "read-pipe", "write-pipe")
small = st.integers(0, 5)
data = st.sampled_from(["@empty", "@short", "@kilobyte", "@mutable", "@view"])
parts = st.sampled_from(["@short", "@kilobyte", "@view"])  # asyncio waits for ever to send an empty one
sendable = st.sampled_from(["@empty", "@short", "@kilobyte", "@mutable"])
odd = st.sampled_from([None, "@text", 3, -1, 1.5, "@nan", math.inf, 2**70, "@object", []])

transport_calls = st.one_of(
    st.tuples(st.just("write"), st.tuples(data | odd)),
    st.tuples(st.just("write"), st.tuples(st.just("@huge"))),
    st.tuples(st.just("writelines"), st.tuples(st.lists(parts | odd, max_size=3) | odd)),
    st.tuples(
        st.sampled_from(
            [
                "write_eof",
                "can_write_eof",
                "close",
                "abort",
                "pause_reading",
                "resume_reading",
                "is_reading",
                "is_closing",
                "get_write_buffer_size",
            ]
        ),
        st.just(()),
    ),
    st.tuples(
        st.just("set_write_buffer_limits"),
        st.tuples(st.sampled_from([None, 0, 10, 100_000, -1, 2**70]), st.sampled_from([None, 0, 10, -1])),
    ),
)
odd_calls = st.sampled_from(
    [
        ("call_soon", ()),
        ("call_later", (None, "@print")),
        ("call_later", ("soon", "@print")),
        ("call_at", (None, "@print")),
        ("call_soon_threadsafe", ()),
        ("add_reader", (-1, "@print")),
        ("add_reader", ("@object", "@print")),
        ("add_writer", ("x", "@print")),
        ("remove_reader", (-1,)),
        ("remove_reader", (10_000,)),
        ("run_until_complete", (3,)),
        ("create_task", (3,)),
        ("set_exception_handler", (3,)),
        ("set_task_factory", (3,)),
        ("add_signal_handler", (9, "@print")),
        ("add_signal_handler", (-1, "@print")),
        ("add_signal_handler", ("x", "@print")),
        ("remove_signal_handler", (10,)),
        ("run_in_executor", (None, 3)),
        ("set_default_executor", (3,)),
        ("call_exception_handler", ({"message": "made up"},)),
    ]
)


def operations(effects: Any) -> Any:
    """Return the operations of a program, whose callbacks have these effects."""
    delays = st.sampled_from([0, -1, -0.0, 1e-9, 1000, math.inf])
    return st.one_of(
        st.tuples(st.just("soon"), small, effects, st.booleans()),
        st.tuples(st.just("later"), delays, small, effects),
        st.tuples(st.just("cancel_handle"), small),
        st.tuples(st.just("future"), small, effects),
        st.tuples(st.just("set_result"), small, small),
        st.tuples(st.just("cancel"), small),
        st.tuples(st.just("task"), small, effects),
        st.tuples(
            st.just("connect"),
            st.sampled_from(KINDS),
            st.dictionaries(st.sampled_from(EVENTS), effects, max_size=2),
            st.booleans(),
        ),
        st.tuples(
            st.just("set_protocol"),
            small,
            st.booleans(),
            st.dictionaries(st.sampled_from(EVENTS), effects, max_size=2),
        ),
        st.tuples(st.just("soon_in"), small, small, effects),
        st.tuples(st.just("context"), small),
        st.tuples(st.just("handler"), st.sampled_from(["noted", "logged", "with effect"]), effects),
        *[transport_calls.flatmap(lambda call: st.tuples(st.just("transport"), small, *map(st.just, call)))]
        * 3,
        st.tuples(
            st.just("peer"), small, st.sampled_from(["send", "shut", "close", "reset", "drain"]), sendable
        ),
        st.tuples(st.just("peer"), small, st.sampled_from(["send", "drain"]), sendable),
        st.tuples(
            st.just("watch"),
            small,
            st.sampled_from(["add_reader", "add_writer", "remove_reader", "remove_writer"]),
            effects,
        ),
        st.tuples(
            st.just("sock"), small, st.just("sock_recv"), st.sampled_from([0, 1, 100, -1, "@text", 2**70])
        ),
        st.tuples(st.just("sock"), small, st.just("sock_sendall"), data),
        st.tuples(st.just("sock"), small, st.just("sock_recv_into"), st.just("@buffer") | odd),
        st.tuples(st.just("extra"), small, st.sampled_from(["socket", "peername", "sockname", "other"])),
        odd_calls.map(lambda call: ("odd_call", *call)),
        st.tuples(st.sampled_from(["stop", "is", "collect", "run_forever"])),
        st.tuples(st.just("debug"), st.booleans()),
    )


class Connections(World):
    """Programs with connections: all of it is in the base class of the other subjects."""
