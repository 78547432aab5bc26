"""Runs: one, many, again, and smaller."""
