"""`Process`, and the watch for the end of a child.

The machine and asyncio wait for children in one way.
"""
