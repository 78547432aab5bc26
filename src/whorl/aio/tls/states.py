"""The states of a TLS connection, the calls that its protocol got, and the size of its records."""

from __future__ import annotations

from typing import Final

#: The most plaintext one record holds: a read into a buffer of this size takes the whole record.
RECORD_SIZE: Final = 16 * 1024

# The states of a TLS connection; `tls.engine` draws the transitions.
CONNECTING: Final = 0  #: the transport underneath is not known yet
HANDSHAKE: Final = 1  #: both sides agree on keys
OPEN: Final = 2  #: data goes both ways
#: No new data is accepted; data that was written or received before is still delivered.
FLUSHING: Final = 3
SHUTDOWN: Final = 4  #: close_notify was sent, and the peer's has not come
CLOSED: Final = 5  #: the transport underneath does the rest

#: The names of these states, in their order.
STATE_NAMES: Final = ("connecting", "handshake", "open", "flushing", "shutdown", "closed")

# The last of the calls that a protocol gets once.
INIT: Final = 0
CON_MADE: Final = 1  #: connection_made
EOF: Final = 2  #: eof_received
CON_LOST: Final = 3  #: connection_lost stands in the ready queue, or was called
