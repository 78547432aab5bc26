"""Whorl's futures and tasks, for programs that switch tasks all the time.

Compiled, as each step runs here.
"""
