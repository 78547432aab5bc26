"""Rows of PostgreSQL by asyncpg, over a pool.

$ DATABASE_URL=postgresql://127.0.0.1:5432/postgres python asyncpg_rows.py
"""

# /// script
# dependencies = ["asyncpg", "whorl-loop"]
# ///

import asyncio
import os

import asyncpg

import whorl


async def main() -> None:
    address = os.environ.get("DATABASE_URL", "postgresql://127.0.0.1:5432/postgres")
    async with asyncpg.create_pool(address, min_size=1, max_size=4) as pool:
        numbers = await asyncio.gather(*(pool.fetchval("select $1::int * 2", index) for index in range(20)))
    assert numbers == [index * 2 for index in range(20)]


if __name__ == "__main__":
    whorl.run(main())
