"""SQLAlchemy's asynchronous sessions, with SQLite in a thread.

$ python sqlalchemy_orm.py
"""

# /// script
# dependencies = ["aiosqlite", "sqlalchemy[asyncio]", "whorl-loop"]
# ///

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import whorl


class Base(DeclarativeBase):
    pass


class Visit(Base):
    __tablename__ = "visits"

    number: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


async def main() -> None:
    engine = create_async_engine("sqlite+aiosqlite:///:memory:")
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with AsyncSession(engine) as session, session.begin():
        session.add_all(Visit(name=name) for name in ("Ada", "Grace"))
        assert list(await session.scalars(select(Visit.name).order_by(Visit.name))) == ["Ada", "Grace"]
    await engine.dispose()


if __name__ == "__main__":
    whorl.run(main())
