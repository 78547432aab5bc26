"""Loops in several threads at once, with traffic of every kind, that reach into each other."""
