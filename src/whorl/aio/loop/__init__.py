"""`EventLoop`: a table of contents; running, tasks, signals, errors, asyncio's private names.

Start at `aio/loop/event_loop`. Compiled where each run or task passes through.
"""
