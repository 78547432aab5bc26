"""The clock, the sockets and the chance of a world, in the place of Python's own while it runs."""
