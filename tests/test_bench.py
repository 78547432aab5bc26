"""The programs of `bench`: their list, those that are left out, and the effect of a wrong answer."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from build_tools.sources import ROOT

pytestmark = pytest.mark.text

BENCH = ROOT / "bench"


@pytest.fixture(autouse=True)
def folder_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCH)


@pytest.fixture
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_main", BENCH / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made(**options: Any) -> Any:
    from programs.program import Program

    return Program(**{"name": "program/made", "title": "Made", "opened": None, "times": 3, **options})


def test_programs_have_names_and_titles_of_their_own() -> None:
    import cases
    from programs import services
    from programs.program import Program

    programs = [case for case in cases.PROGRAMS if isinstance(case, Program)]
    assert len({program.name for program in programs}) == len(programs)
    assert len({program.title for program in programs}) == len(programs)
    assert all(program.name.startswith("program/") for program in programs)
    assert {program.service for program in programs} == {"", *services.SERVICES}


def test_program_is_chosen_by_a_part_of_its_name() -> None:
    import cases

    chosen = [case.name for case in cases.choose(cases.PROGRAMS, ["redis/get", "http/uvi*"])]
    assert chosen == ["program/redis/get/1", "program/redis/get/50", "http/uvicorn/100"]
    assert not {case.name for case in cases.PROGRAMS} & {
        case.name for case in cases.ALL if "program" in case.name
    }


def test_batch_repeats_the_operation_for_each_of_those_at_once() -> None:
    seen = []

    async def operation() -> None:
        seen.append(asyncio.current_task())

    program = made(at_once=4, counts=10)
    asyncio.run(program.run_batch(operation))
    assert len(seen) == 12
    assert len(set(seen)) == 4
    assert program.done_by_batch == 120


def test_wrong_answer_ends_a_batch() -> None:
    from programs.program import WrongAnswerError, check

    async def operation() -> None:
        check(b"other", b"wanted")

    with pytest.raises(WrongAnswerError, match="b'other' in place of b'wanted'"):
        asyncio.run(made(at_once=2).run_batch(operation))


@pytest.mark.parametrize("way", ["by_streams", "by_protocol"])
@pytest.mark.parametrize("kind", ["number", "name", "unix", "tls"])
def test_connections_are_opened_and_closed_at_both_ends(way: str, kind: str) -> None:
    from programs import connections

    async def main() -> None:
        async with getattr(connections, way)(kind, "") as operation:
            await made(at_once=2).run_batch(operation)

    asyncio.run(main())


@pytest.mark.parametrize("name", ["to_thread", "queue", "subprocess"])
def test_program_without_a_server_runs(name: str) -> None:
    from programs import local

    async def main() -> None:
        async with getattr(local, name)("") as operation:
            await made(times=1).run_batch(operation)

    asyncio.run(main())


def test_websocket_server_takes_the_mask_off() -> None:
    from programs import websocket

    mask, text = b"\x01\x02\x03\x04", b"message 17"
    masked = bytes(byte ^ mask[position % 4] for position, byte in enumerate(text))
    assert websocket.answer(bytes((0x81, 0x80 | len(text))) + mask + masked) == b"\x81\x0a" + text
    assert websocket.answer(b"\x88\x80" + mask) == b"\x88\x00"


def test_websocket_server_answers_with_the_key() -> None:
    import base64

    from programs import websocket

    request = b"GET / HTTP/1.1\r\nHost: localhost\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    digest = hashlib.sha1(b"dGhlIHNhbXBsZSBub25jZQ==258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
    assert b"\r\nSec-WebSocket-Accept: %b\r\n" % base64.b64encode(digest) in websocket.accept(request)


def test_service_that_cannot_run_is_named_and_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from measure import Cores, MeasurementError
    from programs import services

    @contextlib.contextmanager
    def lacking(_: object) -> Iterator[str]:
        raise MeasurementError("there is none")
        yield ""

    @contextlib.contextmanager
    def present(_: object) -> Iterator[str]:
        yield "http://127.0.0.1:1"

    monkeypatch.setattr(services, "SERVICES", {"redis": lacking, "http": present})
    with services.running({"redis", "http"}, Cores(0, 0)) as addresses:
        assert addresses == {"http": "http://127.0.0.1:1"}
    assert capsys.readouterr().out == "without redis: there is none\n"


def test_programs_without_package_or_service_are_left_out(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextlib.contextmanager
    def no_service(names: set[str], _: object) -> Iterator[dict[str, str]]:
        assert names == {"redis"}
        yield {}

    monkeypatch.setattr(bench.services, "running", no_service)
    monkeypatch.setattr(bench, "_run", lambda chosen, *_: chosen)
    alone = made(name="program/alone")
    chosen = [
        alone, made(name="program/a", service="redis"), made(name="program/b", packages=("no_such_package",))
    ]  # fmt: skip
    assert bench._run_programs(chosen, [], argparse.Namespace()) == [alone]
    assert "without program/b: no_such_package" in capsys.readouterr().out


def test_loop_that_hangs_in_a_program_is_not_asked_again(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    from loops import Choice
    from measure import Cores, NoEndError, Sample

    asked = []

    def measure(_: object, loop: Choice, *others: object) -> Sample:
        asked.append(loop.name)
        if loop.name == "rloop":
            raise NoEndError("no end after 21 s")
        return Sample(rate=1.0, cpu_us=1.0, is_disturbed=False)

    monkeypatch.setattr(bench, "measure", measure)
    loops = [Choice(name, {}, "1") for name in ("whorl", "rloop")]
    options = argparse.Namespace(rounds=3, seconds=1.0)
    result = bench._run_case(made(), loops, Cores(0, 0), options, {})
    assert asked == ["whorl", "rloop", "whorl", "whorl"]
    assert [len(samples) for samples in result.samples.values()] == [3, 3]
    assert result.has_errors


def test_run_of_programs_is_published_by_both_times() -> None:
    import page

    document = {
        "when": "2030-01-02T03:04:05+0000",
        "machine": {"python": "3.14.0 (main)"},
        "options": {"rounds": 5},
        "loops": {"whorl": "1", "uvloop": "2"},
        "cases": {
            "program/queue": {
                "whorl": {"cpu_ratios": {"uvloop": {"median": 1.234}}, "ratios": {"uvloop": {"median": 1.1}}},
                "uvloop": {"cpu_ratios": {}, "ratios": {}},
            },
            "program/proxy/1": {"whorl": {"cpu_ratios": {}, "ratios": {}}},
        },
    }
    name, table = page.programs_of(document, {})
    assert name == "programs"
    assert table["loops"] == ["by processor time", "by wall time"]
    assert table["rows"] == [
        {"title": "A producer and 10 consumers of a queue", "case": "program/queue", "values": [1.23, 1.1]}
    ]


def test_runs_of_programs_on_other_pythons_have_tables_of_their_own() -> None:
    import page

    document: dict[str, Any] = {
        "when": "2030-01-02T03:04:05+0000",
        "machine": {"python": "3.13.1 (main)"},
        "options": {"rounds": 5},
        "loops": {"whorl": "1 (build/cp313-glibc2.36-profiled/whorl)"},
        "cases": {},
    }
    name, table = page.programs_of(document, {})
    assert name == "programs-3.13"
    assert table["command"] == 'make bench PYTHON=python3.13 CONFIG=profiled ARGS="--programs"'


def test_servers_of_a_run_have_a_column_for_each_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import page

    def of(ratio: float) -> dict[str, Any]:
        return {"cpu_ratios": {"uvloop": {"median": ratio}}}

    document: dict[str, Any] = {
        "when": "2030-01-02T03:04:05+0000",
        "machine": {"python": "3.14.0 (main)"},
        "options": {"rounds": 3},
        "loops": {"whorl": "1", "whorl-server": "1", "uvloop": "2", "zuvloop": "3 (wheel)", "C": "echo"},
        "cases": {
            "http/uvicorn/10": {"whorl": of(1.254), "whorl-server": of(1.4), "zuvloop": of(1.3)},
            "http/hypercorn/100": {"whorl": of(1.2)},
        },
    }
    result = tmp_path / "result.json"
    result.write_text(json.dumps(document), encoding="utf-8")
    published = tmp_path / "published.json"
    row = {"title": "uvicorn, 10 connections", "case": "http/uvicorn/10", "values": []}
    published.write_text(json.dumps({"http": {"rows": [row]}}), encoding="utf-8")
    monkeypatch.setattr(page, "PUBLISHED", published)
    page.publish(result)
    table = page.read()["http"]
    assert table["loops"] == ["Whorl", "Whorl, `server_loop`", "zuvloop"]
    assert [(row["title"], row["values"]) for row in table["rows"]] == [
        ("uvicorn, 10 connections", [1.25, 1.4, 1.3]),
        ("`http/hypercorn/100`", [1.2, None, None]),
    ]
    assert table["about"].endswith("The others: zuvloop 3.")


def test_ratios_without_uvloop_and_asyncio_are_to_the_last_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    import report

    monkeypatch.setattr(report, "REFERENCES", ["uvloop", "asyncio"])
    report.compare(["whorl", "asyncio"])
    assert report.REFERENCES == ["uvloop", "asyncio"]
    report.compare(["whorl-inspected", "whorl"])
    assert report.header().split()[2:6] == ["per", "second", "/", "whorl"]


def test_inspected_loop_has_the_variable_that_starts_the_inspector(monkeypatch: pytest.MonkeyPatch) -> None:
    import loops

    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.delenv("WHORL_INSPECT", raising=False)
    assert loops._environment("whorl-inspected")["WHORL_INSPECT"] == "1"
    assert "WHORL_INSPECT" not in loops._environment("whorl")


def test_threads_have_cases_of_their_own(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import threads

    measured: list[str] = []

    def table(choices: object, wanted: list[str], *rest: object) -> list[str]:
        measured.extend(wanted)
        return []

    monkeypatch.setattr(threads, "table", table)
    monkeypatch.setattr(bench, "_choose_loops", lambda names: list(names))
    monkeypatch.setattr("sys.argv", ["bench", "--threads", "--cases", "posts,tasks"])
    assert bench.main() == 0
    assert measured == ["tasks", "posts"]
    monkeypatch.setattr("sys.argv", ["bench", "--threads", "--cases", "idle"])
    assert bench.main() == 2
    assert capsys.readouterr().err == "no case matches idle\n"
