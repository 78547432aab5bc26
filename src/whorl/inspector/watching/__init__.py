"""Watching loops from outside: who runs, looks, stalls, the stacks of stalls, and the watchdog."""
