"""Asking an inspected process from another one: its socket, the client, the commands."""
