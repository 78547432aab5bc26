"""The columns of `whorl tasks` for the times of tasks."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from whorl.inspector.asking import client, commands
from whorl.inspector.asking.received import row_of

ROW: dict[str, Any] = {
    "id": 1,
    "name": "Task-1",
    "coro": "serve",
    "state": "scheduled",
    "where": ["server.py", 3, "serve"],
    "waits_for": None,
    "parent": None,
}
TIMES = {
    "steps": 12345,
    "busy_ns": 1_234_567,
    "scheduled_ns": 1,
    "idle_ns": 1,
    "longest_ns": 999_600_000,
    "wakes": 3,
    "self_wakes": 0,
}


def shown(monkeypatch: pytest.MonkeyPatch, row: dict[str, Any]) -> list[str]:
    monkeypatch.setattr(client, "rows", lambda pid, what, kind, told: [[row_of(kind, row)]])
    monkeypatch.setenv("COLUMNS", "80")
    return CliRunner().invoke(commands.tasks, ["7"]).output.splitlines()[2:]


def test_times_are_shown_when_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    head, line = shown(monkeypatch, ROW | TIMES)
    assert head.split() == ["TASK", "COROUTINE", "AT", "BUSY", "STEPS", "LONGEST", "WAITS", "FOR"]
    assert line.split() == ["Task-1", "serve", "server.py:3", "1.2", "ms", "12,345", "1", "s", "(scheduled)"]
    assert len(line) <= 80


def test_times_take_no_room_when_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    head, line = shown(monkeypatch, dict(ROW))
    assert head.split() == ["TASK", "COROUTINE", "AT", "WAITS", "FOR"]
    assert line.split() == ["Task-1", "serve", "server.py:3", "(scheduled)"]
