"""`create_connection`, servers, datagram endpoints, pipes, `sendfile`, `start_tls`, subprocesses.

What happens once for a connection. Only accepting is compiled.
"""
