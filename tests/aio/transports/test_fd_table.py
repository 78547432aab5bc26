"""The table of transports by descriptor."""

from __future__ import annotations

from typing import Any

import pytest

from whorl.aio.transports.fd_table import TransportTable


class Transport:
    """A transport, as far as the table knows one."""


@pytest.fixture
def kept() -> dict[int, Transport]:
    return {fd: Transport() for fd in (7, 9, 5)}


@pytest.fixture
def table(kept: dict[int, Transport]) -> Any:
    table = TransportTable()
    for fd, transport in kept.items():
        table.add(fd, transport)
    return table


def test_transports_are_listed_in_the_order_of_their_descriptors(
    table: Any, kept: dict[int, Transport]
) -> None:
    assert table.items() == [(fd, kept[fd]) for fd in (5, 7, 9)]
    assert table.keys() == list(table) == [5, 7, 9]
    assert table.values() == [kept[fd] for fd in (5, 7, 9)]


def test_lost_transport_is_not_listed(table: Any, kept: dict[int, Transport]) -> None:
    del kept[7]
    assert table.keys() == [5, 9]
    assert table.values() == [kept[5], kept[9]]
    assert 7 not in table


def test_transport_that_no_longer_has_its_descriptor_does_not_remove_the_next_one(
    table: Any, kept: dict[int, Transport]
) -> None:
    table.discard(7, kept[9])
    assert len(table) == 3
    table.discard(7, kept[7])
    assert len(table) == 2
    assert table.get(7) is None


def test_table_is_used_like_a_dictionary(table: Any, kept: dict[int, Transport]) -> None:
    table[6] = kept[7]
    del table[7]
    assert table[6] is kept[7]
    assert table.pop(6) is kept[7]
    assert table.pop(6, "none") == "none"
    with pytest.raises(KeyError):
        table[6]


def test_closed_descriptor_is_not_recorded(table: Any) -> None:
    table.add(-1, Transport())
    assert len(table) == 3
    assert table.get(-1) is None
    assert 100 not in table
