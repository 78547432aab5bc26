"""The asyncio face: an event loop that is also `asyncio.AbstractEventLoop`."""
