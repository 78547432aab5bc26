"""The table of interests: the events to watch a descriptor for, by its kind and by the waiting code."""

from __future__ import annotations

import itertools

import pytest

from whorl.aio.sockets import states
from whorl.aio.sockets.interest import interest
from whorl.aio.sockets.states import EDGE, IDLE
from whorl.core import Event

READ_EDGES = EDGE | Event.READABLE | Event.DISCONNECT | Event.PRIORITIZED
BOTH_EDGES = READ_EDGES | Event.WRITABLE
OBJECTS = [states.OTHER, states.LOCAL_STREAM, states.TCP]
KINDS = [states.SHARED, *OBJECTS]
NOTHING = 0
SOMETHING = list(range(1, 16))  # the sets of those that may wait


def level(waiting: int) -> int:
    """Return the directions of the waiting code."""
    reads = waiting & (states.READER | states.RECEIVER)
    writes = waiting & (states.WRITER | states.SENDER)
    return (Event.READABLE if reads else 0) | (Event.WRITABLE if writes else 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("waiting", [each for each in SOMETHING if each & 3])
def test_callbacks_are_watched_level_triggered(kind: int, waiting: int) -> None:
    for former, has_edges in itertools.product([0, Event.READABLE, READ_EDGES], [False, True]):
        assert interest(kind, waiting, former, has_edges) == level(waiting)


@pytest.mark.parametrize("waiting", SOMETHING)
def test_shared_descriptors_are_watched_level_triggered(waiting: int) -> None:
    assert interest(states.SHARED, waiting, 0, True) == level(waiting)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("waiting", SOMETHING)
def test_pollers_without_edges_watch_level_triggered(kind: int, waiting: int) -> None:
    assert interest(kind, waiting, 0, False) == level(waiting)


@pytest.mark.parametrize(
    ("kind", "waiting", "expected"),
    [
        (states.TCP, states.RECEIVER, BOTH_EDGES),
        (states.TCP, states.SENDER, BOTH_EDGES),
        (states.LOCAL_STREAM, states.RECEIVER, READ_EDGES),
        (states.LOCAL_STREAM, states.SENDER, BOTH_EDGES),
        (states.LOCAL_STREAM, states.RECEIVER | states.SENDER, BOTH_EDGES),
        (states.OTHER, states.RECEIVER, READ_EDGES),
        (states.OTHER, states.SENDER, Event.WRITABLE),
        (states.OTHER, states.RECEIVER | states.SENDER, Event.READABLE | Event.WRITABLE),
    ],
)
def test_tasks_of_a_socket_object_are_watched_edge_triggered(kind: int, waiting: int, expected: int) -> None:
    assert interest(kind, waiting, 0, True) == expected


@pytest.mark.parametrize("kind", OBJECTS)
@pytest.mark.parametrize("former", [READ_EDGES, BOTH_EDGES])
def test_an_edge_triggered_watch_stays_idle_while_no_task_waits(kind: int, former: int) -> None:
    expected = BOTH_EDGES if kind == states.TCP else READ_EDGES
    assert interest(kind, NOTHING, former, True) == expected | IDLE


@pytest.mark.parametrize("kind", OBJECTS)
@pytest.mark.parametrize("has_edges", [False, True])
def test_the_watch_of_a_reader_stays_idle_when_the_reader_is_removed(kind: int, has_edges: bool) -> None:
    assert interest(kind, NOTHING, Event.READABLE, has_edges) == Event.READABLE | IDLE


@pytest.mark.parametrize("former", [0, EDGE, Event.WRITABLE, Event.READABLE | Event.WRITABLE])
@pytest.mark.parametrize("kind", KINDS)
def test_no_other_watch_stays_when_nothing_waits(kind: int, former: int) -> None:
    assert interest(kind, NOTHING, former, True) == 0


@pytest.mark.parametrize("former", [Event.READABLE, READ_EDGES, BOTH_EDGES])
def test_no_watch_of_a_shared_descriptor_stays_when_nothing_waits(former: int) -> None:
    assert interest(states.SHARED, NOTHING, former, True) == 0
