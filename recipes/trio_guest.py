"""Trio as a guest: its tasks and asyncio's share one loop.

$ python trio_guest.py
"""

# /// script
# dependencies = ["trio", "whorl-loop"]
# ///

import asyncio
from typing import Any

import trio

import whorl


async def of_trio() -> str:
    await trio.sleep(0.01)
    return "hello from trio"


async def main() -> None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = loop.create_future()
    trio.lowlevel.start_guest_run(
        of_trio,
        run_sync_soon_threadsafe=loop.call_soon_threadsafe,
        run_sync_soon_not_threadsafe=loop.call_soon,
        done_callback=ended.set_result,
    )
    outcome = await ended
    assert outcome.unwrap() == "hello from trio"


if __name__ == "__main__":
    whorl.run(main())
