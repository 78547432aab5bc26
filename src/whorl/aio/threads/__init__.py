"""`run_in_executor`, and futures that follow those of threads.

A job in a pool makes two objects fewer than asyncio's. Compiled.
"""
