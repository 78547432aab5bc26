"""Options of a run: the time that code takes, the lines between hosts, whose tasks, a trace."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import inspect
import socket
from pathlib import Path
from typing import Any

import pytest

from whorl import sim
from whorl.aio.futures.future import Future
from whorl.aio.futures.task import Task
from whorl.sim.running.shrink import drop_one
from whorl.sim.running.trace import read_trace
from whorl.sim.world.options import RunKeywords, RunOptions

SEEDS = range(30)


async def round_trip(world: sim.World) -> float:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    server = world.host("server")
    await server.run(asyncio.start_server, answer, None, 80)
    reader, writer = await asyncio.open_connection("server", 80)
    began = world.now()
    writer.write(b"hello\n")
    assert await reader.readline() == b"hello\n"
    took = world.now() - began
    writer.close()
    await writer.wait_closed()
    return took


async def late(world: sim.World) -> None:
    """Fail if a turn takes so long that a timer fires before the turn that follows."""
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    loop.call_later(0.002, waiter.cancel)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiter.cancelled()


def failing(**options: Any) -> int:
    return sum(sim.run(late, seed=seed, **options).failed for seed in SEEDS)


def test_code_takes_time_unless_a_run_says_otherwise() -> None:
    assert failing() > 0
    assert failing(cpu=None) == 0
    assert failing(cpu=sim.Cpu(rate=0)) == 0
    assert failing(cpu=sim.Cpu("none")) == 0


def test_all_seeds_take_the_model_that_a_run_names() -> None:
    assert failing(cpu=sim.Cpu("grid", 1.0)) == len(SEEDS)


def test_a_tape_repeats_a_run_with_a_model() -> None:
    result = sim.run(late, seed=3, cpu=sim.Cpu("random", 1.0))
    assert sim.replay(late, result.tape, cpu=sim.Cpu("random", 1.0)).digest == result.digest


@pytest.mark.parametrize(("model", "rate"), [("slow", None), (None, 1.5), (None, -0.1)])
def test_a_model_or_a_rate_that_does_not_exist_is_refused(model: Any, rate: Any) -> None:
    with pytest.raises(ValueError, match=r"model|rate"):
        sim.Cpu(model, rate)


def test_a_net_says_how_long_packets_take() -> None:
    took = sim.run(round_trip, faults="none", net=sim.Net(latency=0.1)).check()
    assert took == pytest.approx(0.2, abs=0.001)


def test_a_link_comes_before_the_net() -> None:
    async def main(world: sim.World) -> float:
        world.net.link(world.main, world.host("server"), latency=1.0)
        return await round_trip(world)

    assert sim.run(main, faults="none", net=sim.Net(latency=0.1)).check() == pytest.approx(2, abs=0.001)


def test_a_net_that_loses_packets_delays_them() -> None:
    took = [
        sim.run(round_trip, seed=seed, net=sim.Net(loss=0.2), allow={"leaks"}).check() for seed in range(20)
    ]
    assert max(took) > 0.2  # A lost packet comes again after 0.2 s.
    assert min(took) < 0.2


def test_faults_lose_packets_in_a_net_that_loses_none() -> None:
    faults = sim.Faults(loss=0.2)
    took = [
        sim.run(round_trip, seed=seed, faults=faults, net=sim.Net(), allow={"leaks"}).check()
        for seed in range(20)
    ]
    assert max(took) > 0.2


@pytest.mark.parametrize(
    "options",
    [{"latency": -1}, {"latency": (2, 1)}, {"loss": 2}, {"duplicate": -1}, {"bandwidth": 0}, {"mtu": 67}],
)
def test_a_net_that_cannot_be_is_refused(options: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        sim.Net(**options)


@pytest.mark.parametrize(("size", "code"), [(572, 0), (573, errno.EMSGSIZE)])
def test_a_datagram_that_may_not_be_cut_has_to_fit(size: int, code: int) -> None:
    async def main(world: sim.World) -> int:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO
        world.host("server")
        try:
            sock.sendto(bytes(size), ("10.0.0.2", 9))
        except OSError as error:
            return error.errno or -1
        finally:
            sock.close()
        return 0

    assert sim.run(main, net=sim.Net(mtu=600)).check() == code


def test_loops_make_tasks_of_whorl_if_a_run_asks_for_them() -> None:
    async def main(world: sim.World) -> list[bool]:
        async def kinds() -> bool:
            task, waiter = asyncio.current_task(), asyncio.get_running_loop().create_future()
            assert isinstance(task, asyncio.Task)
            assert isinstance(waiter, asyncio.Future)
            return issubclass(type(task), Task) and issubclass(type(waiter), Future)

        return [await kinds(), await world.host("other").run(kinds)]

    assert sim.run(main, tasks="compiled").check() == [True, True]
    assert sim.run(main).check() == [False, False]


def test_a_run_with_tasks_of_whorl_is_the_one_with_those_of_python() -> None:
    for seed in range(10):
        own = sim.run(round_trip, seed=seed, faults="swarm", tasks="compiled")
        assert own.digest == sim.run(round_trip, seed=seed, faults="swarm").digest


def test_the_order_of_a_set_of_tasks_of_whorl_is_the_seeds() -> None:
    async def main(world: sim.World) -> list[str]:
        async def nothing() -> None:
            pass

        tasks = [asyncio.create_task(nothing(), name=name) for name in "abc"]
        done, _ = await asyncio.wait(tasks)
        return [task.get_name() for task in done]

    orders = ["".join(sim.run(main, seed=seed, tasks="compiled").check()) for seed in range(60)]
    assert len(set(orders)) == 6
    assert orders == ["".join(sim.run(main, seed=seed, tasks="compiled").check()) for seed in range(60)]


def test_a_swallowed_cancellation_of_a_task_of_whorl_is_a_remark() -> None:
    async def main(world: sim.World) -> None:
        async def swallow() -> None:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                pass

        task = asyncio.create_task(swallow())
        await asyncio.sleep(1)
        task.cancel()
        await task

    assert "swallowed" in sim.run(main, tasks="compiled").remarks[0]


def test_tasks_of_nobody_are_refused() -> None:
    with pytest.raises(ValueError, match="tasks must be one of cpython, compiled"):
        sim.run(round_trip, tasks="green")


def test_a_run_writes_its_trace(tmp_path: Path) -> None:
    result = sim.run(round_trip, trace=tmp_path / "trace")
    trace = read_trace(tmp_path / "trace")
    assert trace.head["digest"] == result.digest
    assert trace.calls
    assert trace.packets


def test_a_trace_is_of_one_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a trace is of one run"):
        sim.check(round_trip, trace=tmp_path / "trace")


def test_shrinking_makes_the_passes_that_it_is_given() -> None:
    async def main(world: sim.World) -> None:
        assert sum(world.choose(4, f"choice {number}") for number in range(6)) < 2

    failure = sim.check(main, shrink_s=0).failures[0]
    assert len(sim.shrink(main, failure, passes=[drop_one]).tape.decisions) <= 2


def test_the_command_of_a_report_names_the_options_of_the_run() -> None:
    async def main(world: sim.World) -> None:
        raise ValueError("always")

    def command(**options: Any) -> str:
        return sim.check(main, shrink_s=0, **options).replay_command

    assert "cpu=None" in command(cpu=None)
    assert "tasks='compiled'" in command(tasks="compiled")
    assert "net=Net(latency=0.1" in command(net=sim.Net(latency=0.1))


@pytest.mark.parametrize("call", [sim.run, sim.check, sim.replay])
def test_options_with_unknown_names_are_refused(call: Any) -> None:
    with pytest.raises(TypeError, match="'colour'"):
        call(round_trip, **{"tape": 0} if call is sim.replay else {}, colour="red")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"faults": "wild"}, "there is no profile 'wild'"),
        ({"allow": {"everything"}}, "allow has 'everything'"),
        ({"stall_s": -1.0}, "stall_s must be"),
        ({"tasks": "green"}, "tasks must be one of"),
        ({"tls": "none"}, "tls is one of"),
    ],
)
def test_wrong_options_are_refused_before_any_run(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        sim.check(round_trip, seeds=0, **options)


def test_open_world_refuses_the_options_of_a_run_of_its_own() -> None:
    with pytest.raises(TypeError, match="only `run` has the option 'trace'"):
        sim.open_world(trace="trace")


def test_the_signature_of_run_names_each_option() -> None:
    options = set(inspect.signature(sim.run).parameters) - {"main", "seed"}
    assert (
        options == {each.name for each in dataclasses.fields(RunOptions)} == set(RunKeywords.__annotations__)
    )
