"""aiohttp over TLS."""

from __future__ import annotations

from typing import Any

from tests.sim.programs import aiohttp_app
from tests.sim.programs.contexts import for_client, for_server


async def main(world: Any) -> list[int]:
    """Serve by TLS, and send several requests; each answer is the right one."""
    return await aiohttp_app.main(world, for_server(), for_client())
