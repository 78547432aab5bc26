"""Calls with a deadline, and the heap that orders them.

Each timeout passes through. Compiled, a deadline is a C integer.
"""
