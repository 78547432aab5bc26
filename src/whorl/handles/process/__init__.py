"""`Process`, and how the end of a child is noticed.

The machine and asyncio wait for children in one way.
"""
