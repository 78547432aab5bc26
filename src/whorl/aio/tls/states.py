"""How far a TLS connection is, what its protocol was told, and how large its records are."""

from __future__ import annotations

import enum

#: The most plaintext one record holds: with this much room, a read takes the whole record.
RECORD_SIZE = 16 * 1024


class TLSState(enum.IntEnum):
    """The states of a TLS connection; `tls_layer` draws the transitions."""

    CONNECTING = 0  #: the transport underneath is not known yet
    HANDSHAKE = 1  #: both sides agree on keys
    OPEN = 2  #: data goes both ways
    FLUSHING = 3  #: nothing more is taken; what was written or received before is still delivered
    SHUTDOWN = 4  #: close_notify was sent, and the peer's has not come
    CLOSED = 5  #: the transport underneath does the rest


class AppProtocolState(enum.IntEnum):
    """The last of the calls that a protocol gets once."""

    NOTHING = 0
    MADE = 1  #: connection_made
    ENDED = 2  #: eof_received
    LOST = 3  #: connection_lost stands in the ready queue, or was called
