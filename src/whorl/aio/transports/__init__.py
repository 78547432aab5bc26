"""Transports of sockets, pipes, datagrams and TLS; flow control; their table by descriptor.

The path from readiness to the protocol. Compiled, as each packet passes through.
"""
