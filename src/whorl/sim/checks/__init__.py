"""Checks of a run: conditions, histories that must be linearizable, and remains at the end."""
