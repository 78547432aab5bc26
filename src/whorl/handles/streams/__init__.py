"""The stream engine; libuv's `TCP`, `Pipe` and `TTY` on it.

These and asyncio's transports share the engine. Compiled, as each packet passes through.
"""
