"""Rows of PostgreSQL by psycopg 3.

$ DATABASE_URL=postgresql://127.0.0.1:5432/postgres python psycopg_rows.py
"""

# /// script
# dependencies = ["psycopg[binary]", "whorl-loop"]
# ///

import os

import psycopg

import whorl


async def main() -> None:
    address = os.environ.get("DATABASE_URL", "postgresql://127.0.0.1:5432/postgres")
    async with await psycopg.AsyncConnection.connect(address) as connection:
        cursor = await connection.execute("select number from generate_series(1, 1000) as number")
        assert sum([row[0] async for row in cursor]) == 500_500


if __name__ == "__main__":
    whorl.run(main())
