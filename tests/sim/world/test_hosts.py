"""Hosts: several loops in one world, what they share and what they do not."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from typing import Any

import pytest

from tests.sim.conftest import Run
from whorl import sim


def test_each_host_has_a_loop_a_name_and_an_address(exact: Run) -> None:
    async def main(world: sim.World) -> list[tuple[str, str, int]]:
        async def look() -> tuple[str, str, int]:
            return socket.gethostname(), socket.gethostbyname(socket.gethostname()), os.getpid()

        return [await look(), await world.host("other", "10.1.2.3").run(look)]

    here, there = exact(main)
    assert here[:2] == ("main", "10.0.0.1")
    assert there[:2] == ("other", "10.1.2.3")
    assert here[2] != there[2]


def test_error_of_another_host_reaches_the_task_that_waits_for_it(exact: Run) -> None:
    async def main(world: sim.World) -> None:
        async def fail() -> None:
            await asyncio.sleep(1)
            raise KeyError("there")

        with pytest.raises(KeyError, match="there"):
            await world.host("other").run(fail)

    exact(main)


def test_cancelling_the_wait_cancels_the_task_on_the_other_host(exact: Run) -> None:
    ended: list[str] = []

    async def main(world: sim.World) -> None:
        async def sleep() -> None:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await world.host("other").run(sleep)
        await asyncio.sleep(0.1)

    exact(main)
    assert ended == ["cancelled"]


def test_host_that_is_busy_does_not_delay_others(exact: Run) -> None:
    async def main(world: sim.World) -> float:
        async def busy() -> None:
            world.host("other").sleep(0.1)

        world.host("other").spawn(busy)
        began = world.now()
        await asyncio.sleep(0.01)
        return world.now() - began

    assert exact(main) == pytest.approx(0.01, abs=1e-4)


def test_paused_host_goes_on_where_it_stopped(exact: Run) -> None:
    async def main(world: sim.World) -> float:
        other = world.host("other")

        async def nap() -> float:
            await asyncio.sleep(1)
            return world.now()

        task = other.spawn(nap)
        await asyncio.sleep(0.5)
        other.pause()
        await asyncio.sleep(5)
        other.resume()
        await asyncio.sleep(0.1)
        return task.result()

    assert exact(main) == pytest.approx(5.5, abs=1e-3)


def test_order_in_which_hosts_turn_is_the_seeds() -> None:
    async def main(world: sim.World) -> str:
        order: list[str] = []

        async def tell(name: str) -> None:
            order.append(name)

        for name in "abc":
            world.host(name).spawn(tell, name)
        await asyncio.sleep(1)
        return "".join(order)

    assert len({sim.run(main, seed=seed).check() for seed in range(60)}) == 6


def test_signal_reaches_the_loops_handler_on_its_host_only(exact: Run) -> None:
    async def main(world: sim.World) -> list[str]:
        got: list[str] = []

        async def listen(name: str) -> None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, got.append, name)

        for name in "ab":
            await world.host(name).run(listen, name)
        world.host("a").signal(signal.SIGTERM)
        await asyncio.sleep(1)
        return got

    assert exact(main) == ["a"]


def test_partition_of_two_groups_lets_their_members_talk(exact: Run) -> None:
    async def main(world: sim.World) -> list[bool]:
        async def serve() -> None:
            await asyncio.start_server(lambda reader, writer: writer.close(), port=80)

        async def can_reach(name: str) -> bool:
            try:
                async with asyncio.timeout(0.5):
                    _, writer = await asyncio.open_connection(name, 80)
            except TimeoutError:
                return False
            writer.close()
            return True

        hosts = {name: world.host(name) for name in "abcd"}
        for host in hosts.values():
            await host.run(serve)
        world.net.partition([hosts["a"], hosts["b"]], [hosts["c"], hosts["d"]])
        pairs = [("a", "b"), ("c", "d"), ("a", "c"), ("d", "b")]
        found = [await hosts[one].run(can_reach, other) for one, other in pairs]
        world.net.heal()
        return [*found, await hosts["a"].run(can_reach, "c")]

    assert exact(main) == [True, True, False, False, True]


def test_unhandled_error_of_a_callback_is_a_finding() -> None:
    async def main(world: sim.World) -> None:
        async def plan() -> None:
            asyncio.get_running_loop().call_later(1, lambda: 1 / 0)

        await world.host("other").run(plan)
        await asyncio.sleep(2)

    [finding] = sim.run(main, faults=sim.Faults.none()).findings
    assert (finding.kind, finding.host, round(finding.time_s, 3)) == ("unhandled", "other", 1.0)
    assert isinstance(finding.exception, ZeroDivisionError)


def test_condition_that_fails_ends_the_run_at_its_turn() -> None:
    async def main(world: sim.World) -> None:
        stock: dict[str, int] = {"apples": 3}
        world.always("stock is never negative", lambda: stock["apples"] >= 0)
        while True:
            await asyncio.sleep(1)
            stock["apples"] -= 1

    result = sim.run(main, faults=sim.Faults.none())
    [finding] = result.findings
    assert finding.kind == "always"
    assert result.elapsed_s == pytest.approx(4, abs=1e-3)


def test_condition_that_never_comes_true_is_a_finding() -> None:
    async def main(world: sim.World) -> None:
        world.eventually("somebody answers", lambda: False, within=10)
        await asyncio.sleep(100)

    result = sim.run(main, faults=sim.Faults.none())
    assert [finding.kind for finding in result.findings] == ["eventually"]
    assert result.elapsed_s == pytest.approx(10, abs=1e-3)


def test_names_may_fail_or_be_unknown(exact: Run) -> None:
    async def main(world: sim.World) -> list[Any]:
        loop = asyncio.get_running_loop()
        world.names.set("api.test", "10.7.7.7")
        found = await loop.getaddrinfo("api.test", 80, type=socket.SOCK_STREAM)
        world.names.set("api.test")
        with pytest.raises(socket.gaierror) as caught:
            await loop.getaddrinfo("api.test", 80)
        return [found[0][4], caught.value.errno]

    assert exact(main) == [("10.7.7.7", 80), socket.EAI_NONAME]


def test_name_server_that_fails_is_a_fault_of_the_seed() -> None:
    async def main() -> bool:
        try:
            await asyncio.get_running_loop().getaddrinfo("main", 80)
        except socket.gaierror as error:
            return error.errno != socket.EAI_AGAIN
        return True

    found = [sim.run(main, seed=seed, faults=sim.Faults(dns=0.5)).check() for seed in range(30)]
    assert 5 < sum(found) < 25
