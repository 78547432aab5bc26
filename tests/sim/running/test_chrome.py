"""Traces of simulated runs for Perfetto, Chrome and speedscope."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whorl import sim
from whorl.sim.running.chrome import LOOP_ROW, NETWORK_ROW, write
from whorl.sim.running.trace import read_trace, write_trace

Event = dict[str, Any]


async def main(world: sim.World) -> None:
    server = world.host("server")
    await server.run(asyncio.start_server, lambda reader, writer: writer.close(), None, 80)
    _, writer = await asyncio.open_connection("server", 80)
    writer.close()


async def say_hello(world: sim.World) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        writer.close()

    server = world.host("server")
    await server.run(asyncio.start_server, answer, None, 80)
    reader, writer = await asyncio.open_connection("server", 80)
    writer.write(b"hello\n")
    assert await reader.read() == b"HELLO\n"
    writer.close()
    await writer.wait_closed()


def traced(program: Callable[..., Any], folder: Path, **options: Any) -> list[Event]:
    """Return the events of a run's trace, as viewers read them."""
    write_trace(sim.run(program, keeps_calls=True, **options), folder / "trace")
    head, calls, packets, _ = read_trace(folder / "trace")
    write(folder / "chrome.json", head, calls, packets)
    return json.loads((folder / "chrome.json").read_text())["traceEvents"]  # type: ignore[no-any-return]


def of_kind(events: list[Event], phase: str) -> list[Event]:
    return [event for event in events if event["ph"] == phase]


def places(events: list[Event]) -> dict[int, str]:
    """Return the names of the rows by their numbers, each after its host's."""
    hosts = {each["pid"]: each["args"]["name"] for each in events if each["name"] == "process_name"}
    rows = [each for each in events if each["name"] == "thread_name"]
    return {row["tid"]: f"{hosts[row['pid']]}: {row['args']['name']}" for row in rows}


def test_each_host_is_a_process_and_each_task_a_row(tmp_path: Path) -> None:
    events = traced(main, tmp_path)
    hosts = [event for event in events if event["name"] == "process_name"]
    assert {host["args"]["name"] for host in hosts} == {"host main", "host server"}
    assert {"host main: main", f"host main: {LOOP_ROW}"} <= set(places(events).values())
    assert len(places(events)) == len([event for event in events if event["name"] == "thread_name"])


def test_each_call_is_an_event_at_its_virtual_time(tmp_path: Path) -> None:
    result = sim.run(main, keeps_calls=True)
    write_trace(result, tmp_path / "trace")
    head, calls, packets, _ = read_trace(tmp_path / "trace")
    write(tmp_path / "chrome.json", head, calls, packets)
    trace = json.loads((tmp_path / "chrome.json").read_text())
    assert result.calls is not None
    assert [(event["name"], round(event["ts"] * 1000)) for event in of_kind(trace["traceEvents"], "i")] == [
        (call[2], call[0]) for call in result.calls
    ]
    assert trace["otherData"]["digest"] == result.digest


def test_a_packet_is_an_arrow_from_the_task_that_sent_it_to_the_other_host(tmp_path: Path) -> None:
    events = traced(say_hello, tmp_path, faults="none")
    rows = places(events)
    begins = {event["id"]: event for event in of_kind(events, "s")}
    ends = {event["id"]: event for event in of_kind(events, "f")}
    assert begins.keys() == ends.keys()
    arrows = [
        (begins[each]["name"], rows[begins[each]["tid"]], rows[ends[each]["tid"]]) for each in sorted(begins)
    ]
    assert arrows == [
        ("syn", "host main: main", f"host server: {NETWORK_ROW}"),
        ("syn-ack", f"host server: {NETWORK_ROW}", f"host main: {NETWORK_ROW}"),
        ("data 6", "host main: main", f"host server: {NETWORK_ROW}"),
        ("data 6", "host server: Task-3", f"host main: {NETWORK_ROW}"),
        ("fin", f"host server: {NETWORK_ROW}", f"host main: {NETWORK_ROW}"),
        ("fin", f"host main: {NETWORK_ROW}", f"host server: {NETWORK_ROW}"),
    ]
    assert {round(ends[each]["ts"] - begins[each]["ts"]) for each in begins} == {200}  # the shortest latency


@pytest.mark.parametrize("faults", ["none", "rough"])
def test_arrows_follow_the_rules_of_the_format(tmp_path: Path, faults: str) -> None:
    """Check what viewers ask of flow events: both ends share category, id and name, and lie in a slice."""
    events = traced(say_hello, tmp_path, faults=faults, seed=3)
    begins, ends = of_kind(events, "s"), of_kind(events, "f")
    assert begins
    assert not of_kind(events, "t")
    keys = [[(each["cat"], each["id"], each["name"]) for each in side] for side in (begins, ends)]
    assert len(set(keys[0])) == len(keys[0])
    assert sorted(keys[0]) == sorted(keys[1])
    begun = {each["id"]: each["ts"] for each in begins}
    assert all(begun[each["id"]] <= each["ts"] and each["bp"] == "e" for each in ends)
    slices = of_kind(events, "X")
    for end in begins + ends:
        assert any(
            (each["pid"], each["tid"]) == (end["pid"], end["tid"])
            and each["cat"] == end["cat"]
            and each["ts"] <= end["ts"] < each["ts"] + each["dur"]
            for each in slices
        )


def test_packets_name_the_sockets_at_both_ends(tmp_path: Path) -> None:
    sent = [event for event in of_kind(traced(say_hello, tmp_path), "X") if event["name"] == "data 6, sent"]
    first, answer = (event["args"] for event in sent)
    assert first["from"].startswith("10.0.0.1:")
    assert first["to"].startswith("10.0.0.2:80")
    assert answer["from"] == first["to"]
    assert answer["to"] == first["from"]
    assert all("descriptor" in each for each in (first["from"], first["to"]))


def test_a_lost_packet_has_no_arrow_and_comes_again(tmp_path: Path) -> None:
    async def cut(world: sim.World) -> None:
        server = world.host("server")
        taken: asyncio.Queue[bytes] = asyncio.Queue()

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            taken.put_nowait(await reader.readline())
            writer.close()

        await server.run(asyncio.start_server, take, None, 80)
        _, writer = await asyncio.open_connection("server", 80)
        partition = world.net.partition(server)
        writer.write(b"hello\n")
        await asyncio.sleep(0.1)
        partition.heal()
        while taken.empty():
            await asyncio.sleep(0.1)
        writer.close()
        await writer.wait_closed()

    events = traced(cut, tmp_path, faults="none")
    names = [event["name"] for event in of_kind(events, "X")]
    assert "data 6, lost" in names
    assert "again 6, arrived" in names
    assert "data 6" not in [event["name"] for event in of_kind(events, "s")]


def test_datagrams_are_arrows_too(tmp_path: Path) -> None:
    async def datagram(world: sim.World) -> None:
        async def send() -> None:
            loop = asyncio.get_running_loop()
            transport, _ = await loop.create_datagram_endpoint(
                asyncio.DatagramProtocol, local_addr=("0.0.0.0", 9)
            )
            transport.sendto(b"hello", ("10.0.0.1", 9))
            await asyncio.sleep(1)
            transport.close()

        await world.host("sender").run(send)

    events = traced(datagram, tmp_path, faults="none")
    assert [event["name"] for event in of_kind(events, "s")] == ["datagram 5", "unreachable"]


def test_a_run_has_the_same_digest_with_and_without_a_trace() -> None:
    for seed in range(5):
        kept = sim.run(say_hello, seed=seed, faults="light", keeps_calls=True)
        assert kept.packets
        assert sim.run(say_hello, seed=seed, faults="light").digest == kept.digest
