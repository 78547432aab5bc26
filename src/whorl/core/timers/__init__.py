"""Calls with a deadline, and the heap that orders them.

Each timeout passes through this room. Compiled, a deadline is a C integer.
"""
