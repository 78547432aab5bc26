"""Dask and Ray on each loop: `make bench ARGS=--clusters`.

Each measurement starts a cluster of its own on this machine, with its default number of processes cut to two.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import loops
from loops import Choice

LOOPS = ("whorl", "uvloop", "asyncio")
BASE = "uvloop"
ENGINES = ("dask", "ray")
SLOWEST = 300  # seconds
BLOCK = bytes(1_000_000)
BLOCKS = 20
ACTORS = 10
CLIENTS = 8

Rates = dict[str, float]


def table(choices: Sequence[Choice], engines: Sequence[str], rounds: int, seconds: float) -> Iterator[str]:
    """Measure in interleaved rounds; yield a line for each case and loop."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        Path(folder, "uvloop.py").write_text("raise ImportError('the loop of asyncio is measured')\n")
        for engine in engines:
            rates: dict[tuple[str, str], list[float]] = {}
            for _ in range(rounds):
                for choice in choices:
                    try:
                        found = _measure(choice, engine, seconds, folder)
                    except (RuntimeError, subprocess.TimeoutExpired) as error:
                        yield f"{engine:16} {choice.name:8} {error}"
                        continue
                    for case, rate in found.items():
                        rates.setdefault((case, choice.name), []).append(rate)
            yield from _lines(rates)


def _lines(rates: Mapping[tuple[str, str], Sequence[float]]) -> Iterator[str]:
    for (case, name), found in sorted(rates.items(), key=lambda item: item[0][0]):
        base = rates.get((case, BASE), ())
        ratio = statistics.median(a / b for a, b in zip(found, base, strict=False)) if base else 0.0
        yield f"{case:16} {name:8} {statistics.median(found):12,.1f} {ratio:10.2f}"


def _measure(choice: Choice, engine: str, seconds: float, folder: str) -> Rates:
    command = [sys.executable, __file__, engine, str(seconds)]
    environment = {**choice.environment, **_names_of(choice.name, folder, choice.environment)}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SLOWEST)
    if answer.returncode:
        raise RuntimeError((answer.stderr.strip().splitlines() or ["it said nothing"])[-1])
    rates: Rates = json.loads(answer.stdout.splitlines()[-1])
    return rates


def _names_of(name: str, folder: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which Dask and Ray, and their processes, find this loop."""
    path = environment.get("PYTHONPATH", "")
    if name == "asyncio":
        return {"PYTHONPATH": os.pathsep.join(filter(None, [folder, path])), "EXPECTED_LOOP": "asyncio"}
    found = {"DASK_DISTRIBUTED__ADMIN__EVENT_LOOP": "uvloop", "EXPECTED_LOOP": name.partition("@")[0]}
    if name.startswith("whorl"):
        import whorl.substitute

        found["PYTHONPATH"] = os.pathsep.join(filter(None, [whorl.substitute.IMPORT_PATH, path]))
    return found


def _check_loop(module: str) -> None:
    expected = os.environ["EXPECTED_LOOP"]
    if module.partition(".")[0] != expected:
        raise RuntimeError(f"it ran on {module}, not on {expected}")


# Dask.


def increment(number: int) -> int:
    return number + 1


async def _dask(seconds: float) -> Rates:
    from distributed import Client, LocalCluster, wait

    options: Any = {"n_workers": 2, "threads_per_worker": 1, "asynchronous": True, "dashboard_address": None}
    async with (
        LocalCluster(processes=True, **options) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        for module in (await client.run(_module_of_worker)).values():
            _check_loop(module)
        numbers = iter(range(10**9))

        async def tasks() -> float:
            await client.gather(client.map(increment, [next(numbers) for _ in range(200)], pure=False))
            return 200

        async def scatter() -> float:
            await client.scatter([BLOCK] * BLOCKS, hash=False)
            return BLOCKS

        kept = await client.scatter([BLOCK] * BLOCKS, hash=False)
        await wait(kept)

        async def gather() -> float:
            await client.gather(kept)
            return BLOCKS

        return {
            "dask tasks": await _rate(tasks, seconds),
            "dask scatter MB": await _rate(scatter, seconds),
            "dask gather MB": await _rate(gather, seconds),
        }


def _module_of_worker(dask_worker: Any) -> str:
    return type(dask_worker.loop.asyncio_loop).__module__


async def _rate(operation: Callable[[], Awaitable[float]], seconds: float) -> float:
    """Return what is done in a second, after one call that is not measured."""
    await operation()
    done, began = 0.0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        done += await operation()
    return done / (time.perf_counter() - began)


# Ray.


def _ray(seconds: float) -> Rates:
    import ray

    class Counter:
        def __init__(self) -> None:
            self.count = 0

        async def add(self, number: int) -> int:
            self.count += number
            return self.count

        async def loop(self) -> str:
            return type(asyncio.get_running_loop()).__module__

    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    actors = [ray.remote(Counter).options(num_cpus=0).remote() for _ in range(ACTORS)]  # type: ignore[attr-defined]
    for module in ray.get([actor.loop.remote() for actor in actors]):
        _check_loop(module)

    async def calls(of: Sequence[Any]) -> float:
        ray.get([of[number % len(of)].add.remote(number) for number in range(500)])
        return 500

    rates = {
        "ray one actor": asyncio.run(_rate(lambda: calls(actors[:1]), seconds)),
        "ray ten actors": asyncio.run(_rate(lambda: calls(actors), seconds)),
    }
    for actor in actors:
        ray.kill(actor)
    rates["ray serve"] = _ray_serve(seconds)
    ray.shutdown()
    return rates


def _ray_serve(seconds: float) -> float:
    """Return the requests a second that Ray Serve answers to some clients with one connection each."""
    from ray import serve

    @serve.deployment(max_ongoing_requests=100)
    class Hello:
        async def __call__(self, request: Any) -> str:
            return type(asyncio.get_running_loop()).__module__

    serve.run(Hello.bind())  # type: ignore[attr-defined]

    def client(_: int) -> int:
        connection = HTTPConnection("127.0.0.1", 8000)
        done, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            connection.request("GET", "/")
            _check_loop(connection.getresponse().read().decode())
            done += 1
        return done

    client(0)
    with ThreadPoolExecutor(CLIENTS) as pool:
        done = sum(pool.map(client, range(CLIENTS)))
    serve.shutdown()
    return done / seconds


if __name__ == "__main__":
    loops.die_with_parent()
    if sys.argv[1] == "dask":
        import distributed  # noqa: F401 - it chooses the loop of asyncio.run

        measured = asyncio.run(_dask(float(sys.argv[2])))
    else:
        measured = _ray(float(sys.argv[2]))
    print(json.dumps(measured), flush=True)
