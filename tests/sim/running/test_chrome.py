"""Traces of simulated runs for Perfetto, Chrome and speedscope."""

from __future__ import annotations

import asyncio
from pathlib import Path

from whorl import sim
from whorl.sim.running.chrome import LOOP_ROW, chrome_trace
from whorl.sim.running.trace import read_trace, write_trace


async def main(world: sim.World) -> None:
    server = world.host("server")
    await server.run(asyncio.start_server, lambda reader, writer: writer.close(), None, 80)
    _, writer = await asyncio.open_connection("server", 80)
    writer.close()


def test_each_host_is_a_process_and_each_task_a_row(tmp_path: Path) -> None:
    write_trace(sim.run(main, keeps_calls=True), tmp_path / "trace")
    head, calls, _ = read_trace(tmp_path / "trace")
    trace = chrome_trace(head, calls)
    hosts = [event for event in trace["traceEvents"] if event["name"] == "process_name"]
    names = {event["args"]["name"]: event["pid"] for event in hosts}
    rows = [event for event in trace["traceEvents"] if event["name"] == "thread_name"]
    assert set(names) == {"host main", "host server"}
    assert {"main", LOOP_ROW} <= {row["args"]["name"] for row in rows if row["pid"] == names["host main"]}
    assert len({row["tid"] for row in rows}) == len(rows)


def test_each_call_is_an_event_at_its_virtual_time(tmp_path: Path) -> None:
    result = sim.run(main, keeps_calls=True)
    write_trace(result, tmp_path / "trace")
    head, calls, _ = read_trace(tmp_path / "trace")
    trace = chrome_trace(head, calls)
    events = [event for event in trace["traceEvents"] if event["ph"] == "i"]
    assert result.calls is not None
    assert [(event["name"], round(event["ts"] * 1000)) for event in events] == [
        (call[2], call[0]) for call in result.calls
    ]
    assert trace["otherData"]["digest"] == result.digest
