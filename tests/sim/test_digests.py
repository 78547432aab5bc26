"""The digest of a run depends on its seed only: not on the process, the build, or what ran before."""

from __future__ import annotations

import asyncio
import gc
import random
import ssl
import sys
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.sim.determinism import digests, system_calls
from tests.sim.programs.contexts import for_client, for_server
from whorl import sim

Main = Callable[[Any], Coroutine[Any, Any, Any]]

KEPT = (ssl.RAND_bytes,)  # where no world finds it


async def sets_of_tasks(world: Any) -> None:
    """Wait for sets of tasks, and write in the order in which they come out."""
    left, right, other = await world_pipe()
    pending = {asyncio.create_task(asyncio.sleep(0.001, number)) for number in range(6)}
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            right.write(bytes([task.result()]))
    assert len(await left.readexactly(6)) == 6
    right.close()
    other.close()
    await ended()


async def world_pipe() -> tuple[asyncio.StreamReader, asyncio.StreamWriter, asyncio.StreamWriter]:
    """Return a reader of what a writer of another connection's end sends, and its own writer."""
    arrived: asyncio.Queue[asyncio.StreamReader] = asyncio.Queue()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.put_nowait(reader)
        ends.append(writer)

    ends: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(accept, "10.0.0.1", 7)
    _, writer = await asyncio.open_connection("10.0.0.1", 7)
    server.close()
    reader = await arrived.get()
    ends[0].write_eof()
    return reader, writer, ends[0]


async def jobs_and_chance(world: Any) -> None:
    """Send what jobs of threads and all sources of chance give."""
    left, right, other = await world_pipe()
    for _ in range(5):
        value = await asyncio.to_thread(random.random)
        right.write(f"{value} {uuid.uuid4()} {uuid.uuid1()} {random.SystemRandom().random()}\n".encode())
        await left.readline()
    right.close()
    other.close()
    await ended()


async def ended() -> None:
    """Wait until all transports have ended; that takes no real time."""
    await asyncio.sleep(40)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each line."""
    while line := await reader.readline():
        writer.write(line)
    writer.close()


async def tls(world: Any) -> None:
    """Send lines over TLS, both ways."""
    server = await asyncio.start_server(answer, "10.0.0.1", 443, ssl=for_server())
    reader, writer = await asyncio.open_connection("10.0.0.1", 443, ssl=for_client())
    for number in range(5):
        writer.write(f"{number}\n".encode())
        assert await reader.readline() == f"{number}\n".encode()
    writer.close()
    server.close()
    await ended()


PROGRAMS = [sets_of_tasks, jobs_and_chance, tls]


@pytest.mark.parametrize("program", PROGRAMS)
def test_run_of_a_seed_is_the_same_after_other_runs(program: Main) -> None:
    first = [sim.run(program, seed=seed, faults="light") for seed in range(8)]
    kept = [object() for _ in range(1000)]  # other addresses
    again = [sim.run(program, seed=seed, faults="light") for seed in reversed(range(8))]
    del kept
    gc.collect()
    assert [each.findings for each in first] == [[]] * 8
    assert [each.digest for each in first] == [each.digest for each in reversed(again)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_runs_of_different_seeds_differ(program: Main) -> None:
    assert len({sim.run(program, seed=seed).digest for seed in range(8)}) > 6


def test_tls_of_the_machine_has_a_digest_of_sizes() -> None:
    runs = [sim.run(tls, seed=1, tls="real", keeps_calls=True) for _ in range(2)]
    assert runs[0].digest == runs[1].digest
    assert not any(isinstance(part, bytes) for call in runs[0].calls or () for part in call)


def test_openssl_has_its_own_chance_again_after_a_world() -> None:
    drawn = []
    for _ in range(2):
        sim.run(tls, seed=1)
        drawn.append(ssl.RAND_bytes(16))
    assert drawn[0] != drawn[1]


def test_openssl_draws_from_the_seed_in_a_world() -> None:
    async def main(world: Any) -> bytes:
        return ssl.RAND_bytes(16)

    assert sim.run(main, seed=1).value == sim.run(main, seed=1).value != sim.run(main, seed=2).value


def test_openssl_draws_from_the_seed_by_a_function_that_was_kept_before() -> None:
    async def main(world: Any) -> bytes:
        return KEPT[0](16)

    assert sim.run(main, seed=1).value == sim.run(main, seed=1).value


def test_server_context_from_outside_a_world_gets_a_remark() -> None:
    context = for_server()

    async def main(world: Any) -> None:
        server = await asyncio.start_server(answer, "10.0.0.1", 443, ssl=context)
        _, writer = await asyncio.open_connection("10.0.0.1", 443, ssl=for_client())
        writer.close()
        server.close()
        await ended()

    assert any("outside the world" in remark for remark in sim.run(main, seed=1).remarks)


def test_way_of_tls_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="tls is one of"):
        sim.run(tls, tls="none")


def test_module_that_is_imported_in_a_world_sees_the_process() -> None:
    async def main(world: Any) -> tuple[float, float]:
        sys.modules.pop("tests.sim.imported_in_a_world", None)
        before = random.random()
        from tests.sim import imported_in_a_world

        assert imported_in_a_world.PROCESS_ID != world.main.process_id
        assert (
            imported_in_a_world.monotonic() < 2000
        )  # the world's clock, under the name that the module took
        return before, random.random()

    assert sim.run(main, seed=1).check() == sim.run(main, seed=1).check()


@pytest.mark.slow
def test_run_of_a_seed_is_the_same_in_all_processes_and_builds() -> None:
    program = "tests.sim.programs.websockets_echo"
    ways = [("0", False), ("1", False), ("random", False), ("random", True)]
    found = [digests(program, "0:4", hash_seed=hash_seed, pure=pure) for hash_seed, pure in ways]
    assert found == found[:1] * 4


@pytest.mark.slow
def test_runs_make_no_system_calls() -> None:
    calls = system_calls("tests.sim.programs.aiohttp_app", "0:3")
    if calls is None:
        pytest.skip("strace cannot trace here")
    assert calls == {}


def test_generator_without_a_seed_draws_from_the_seed_of_the_world() -> None:
    async def main() -> tuple[float, float]:
        other = random.Random()
        random.seed()
        return other.random(), random.random()

    assert sim.run(main, seed=1).value == sim.run(main, seed=1).value != sim.run(main, seed=2).value
    before = random.Random().random()
    assert random.Random().random() != before  # outside of worlds, as ever
