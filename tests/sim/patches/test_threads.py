"""Executors, threads, processes and chance in a simulated world."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import random
import secrets
import ssl
import subprocess
import threading
import time
import uuid
from collections.abc import Callable

import pytest

from tests.sim.conftest import Run
from whorl import sim
from whorl.sim.errors import BlockingSocket, RealProcess, RealProgram, RealThread, Unsimulated
from whorl.sim.patches import tls


def test_jobs_run_in_virtual_time_without_a_thread(exact: Run) -> None:
    async def main() -> tuple[str, float, int]:
        loop = asyncio.get_running_loop()
        began = loop.time()

        def job() -> str:
            time.sleep(5)
            return "done"

        result = await asyncio.to_thread(job)
        await loop.shutdown_default_executor()
        return result, loop.time() - began, threading.active_count()

    threads = threading.active_count()
    result, took, active = exact(main)
    assert (result, active) == ("done", threads)
    assert took == pytest.approx(5, abs=0.01)


def test_job_that_sleeps_does_not_delay_the_loop(exact: Run) -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        job = loop.run_in_executor(None, time.sleep, 5)
        await asyncio.sleep(1)
        took = loop.time() - began
        await job
        return took

    assert exact(main) == pytest.approx(1, abs=0.01)


def test_callback_that_a_job_posts_comes_after_its_sleep_and_may_be_cancelled(exact: Run) -> None:
    async def main() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        got: list[tuple[str, float]] = []

        def job() -> None:
            time.sleep(1)
            loop.call_soon_threadsafe(lambda: got.append(("kept", loop.time() - began)))
            loop.call_soon_threadsafe(lambda: got.append(("cancelled", 0.0))).cancel()

        await loop.run_in_executor(None, job)
        await asyncio.sleep(1)
        return got

    [(name, time_s)] = exact(main)
    assert name == "kept"
    assert time_s == pytest.approx(1, abs=0.01)


def test_executor_of_the_programs_own_has_no_thread_either(exact: Run) -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        with concurrent.futures.ThreadPoolExecutor(2) as executor:
            jobs = [loop.run_in_executor(executor, pow, 2, n) for n in range(5)]
            plain = executor.submit(pow, 2, 10)
            results = await asyncio.gather(*jobs, asyncio.wrap_future(plain))
        assert threading.active_count() == threads
        return list(results)

    threads = threading.active_count()
    assert exact(main) == [1, 2, 4, 8, 16, 1024]


def test_error_of_a_job_reaches_its_task(exact: Run) -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)

    exact(main)


def start_thread() -> None:
    threading.Thread(target=print).start()


def fork() -> None:
    os.fork()


def run_program() -> None:
    subprocess.run(["ls"], check=True)


def connect_and_wait() -> None:
    import socket

    socket.create_connection(("10.0.0.9", 80))


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (start_thread, RealThread),
        (fork, RealProcess),
        (run_program, RealProgram),
        (connect_and_wait, BlockingSocket),
    ],
    ids=["thread", "fork", "program", "blocking"],
)
def test_step_out_of_the_world_is_refused_by_name(
    act: Callable[[], object], error: type[Unsimulated]
) -> None:
    async def main() -> None:
        act()

    [finding] = sim.run(main).findings
    assert type(finding.exception) is error
    assert finding.kind == "limit"
    assert "test_threads.py" in finding.text


def test_chance_follows_the_seed() -> None:
    async def main() -> list[object]:
        return [random.random(), secrets.token_hex(4), uuid.uuid4(), uuid.uuid1(), os.urandom(4)]

    first = sim.run(main, seed=1).check()
    assert sim.run(main, seed=1).check() == first
    assert not set(map(str, sim.run(main, seed=2).check())) & set(map(str, first))


@pytest.mark.skipif(tls._CHANCE.library() is None, reason="the OpenSSL of this Python is hidden")
def test_chance_of_openssl_begins_anew_in_each_run() -> None:
    async def main() -> bytes:
        return ssl.RAND_bytes(8)

    found = [sim.run(main, seed=seed).check() for seed in (3, 4, 3)]
    assert found[0] == found[2] != found[1]


def test_chance_of_the_process_goes_on_as_if_there_had_been_no_world() -> None:
    async def main() -> float:
        return random.random()

    random.seed(5)
    expected = [random.random() for _ in range(3)]
    random.seed(5)
    got = [random.random()]
    sim.run(main)
    got += [random.random(), random.random()]
    assert got == expected


def test_order_of_a_set_of_tasks_is_the_seeds() -> None:
    async def main() -> tuple[str, ...]:
        tasks = [asyncio.create_task(asyncio.sleep(0), name=name) for name in "abc"]
        done, _ = await asyncio.wait(tasks)
        return tuple(task.get_name() for task in done)

    orders = [sim.run(main, seed=seed).check() for seed in range(80)]
    assert len(set(orders)) == 6
    assert [sim.run(main, seed=seed).check() for seed in range(10)] == orders[:10]


def test_callbacks_run_in_the_order_of_their_calls_for_every_seed() -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        got: list[int] = []
        for number in range(5):
            loop.call_soon(got.append, number)
        await asyncio.sleep(0)
        return got

    assert {tuple(sim.run(main, seed=seed).check()) for seed in range(100)} == {(0, 1, 2, 3, 4)}


def test_worlds_do_not_run_inside_each_other() -> None:
    async def inner() -> None:
        return None

    async def main() -> None:
        sim.run(inner)

    [finding] = sim.run(main).findings
    assert "worlds do not run inside each other" in finding.text


def test_loop_of_an_open_world_is_run_by_others(world: sim.World) -> None:
    loop = world.main.loop

    async def sleep() -> float:
        began = loop.time()
        async with asyncio.timeout(50):
            await asyncio.sleep(40)
        return loop.time() - began

    assert loop.run_until_complete(sleep()) == pytest.approx(40, abs=1e-3)
    assert loop.run_until_complete(sleep()) == pytest.approx(40, abs=1e-3)


def test_loop_of_an_open_world_may_be_late() -> None:
    for seed in range(30):
        with sim.open_world(seed, faults=sim.Faults(cpu=1.0)) as world:
            world.main.loop.run_until_complete(asyncio.sleep(0.0001))


def test_hosts_go_on_while_the_loop_of_an_open_world_sleeps(world: sim.World) -> None:
    other = world.host("other")

    async def serve() -> None:
        await asyncio.start_server(lambda reader, writer: writer.close(), port=80)

    async def connect() -> bytes:
        reader, writer = await asyncio.open_connection("other", 80)
        data = await reader.read()
        writer.close()
        return data

    other.spawn(serve)
    assert world.main.loop.run_until_complete(connect()) == b""
