"""The world: its time, its hosts, whose turn it is, and what it has noticed."""
