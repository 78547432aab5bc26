"""The open connections of a server, which it knows weakly."""

from __future__ import annotations

import gc

from whorl.aio.transports.connection_set import ConnectionSet


class Transport:
    """A transport to which there may be a weak reference."""


def test_transports_are_known_until_they_are_discarded() -> None:
    clients, one, two = ConnectionSet(), Transport(), Transport()
    clients.add(one)
    clients.add(two)
    assert (len(clients), clients.transports()) == (2, [one, two])
    clients.discard(one)
    clients.discard(one)
    assert (len(clients), clients.transports()) == (1, [two])


def test_a_transport_that_is_gone_is_counted_until_it_is_discarded() -> None:
    clients, one = ConnectionSet(), Transport()
    clients.add(one)
    del one
    gc.collect()
    assert (len(clients), clients.transports()) == (1, [])
