"""Futures and tasks of Whorl's own.

For programs that switch tasks all the time. Compiled, as each step runs here.
"""
