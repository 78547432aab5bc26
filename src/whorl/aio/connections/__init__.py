"""`create_connection`, servers, datagram endpoints, pipes, `sendfile`, `start_tls`, subprocesses.

The steps that happen once for a connection. Only accepting is compiled.
"""
