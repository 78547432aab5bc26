"""The inspector: what a loop does, seen from outside it."""
