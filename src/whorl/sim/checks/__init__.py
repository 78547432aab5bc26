"""Checks of a run: conditions, histories that must be linearizable, and leaks at the end."""
