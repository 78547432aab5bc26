"""The states of a TLS connection, the calls that its protocol got, and the size of its records."""

from __future__ import annotations

import enum

#: The most plaintext one record holds: a read into a buffer of this size takes the whole record.
RECORD_SIZE = 16 * 1024


class TLSState(enum.IntEnum):
    """The states of a TLS connection; `tls.engine` draws the transitions."""

    CONNECTING = 0  #: the transport underneath is not known yet
    HANDSHAKE = 1  #: both sides agree on keys
    OPEN = 2  #: data goes both ways
    FLUSHING = 3  #: no new data is accepted; data that was written or received before is still delivered
    SHUTDOWN = 4  #: close_notify was sent, and the peer's has not come
    CLOSED = 5  #: the transport underneath does the rest


class AppProtocolState(enum.IntEnum):
    """The last of the calls that a protocol gets once."""

    INIT = 0
    CON_MADE = 1  #: connection_made
    EOF = 2  #: eof_received
    CON_LOST = 3  #: connection_lost stands in the ready queue, or was called
