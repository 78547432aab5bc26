"""Whorl's assumptions about CPython's asyncio, and how it notices a change.

A program may replace a method of a class or an instance. Compiled, as each call asks.
"""
