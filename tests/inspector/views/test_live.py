"""The live view, driven by Textual's pilot."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("textual", reason="the live view needs Textual")

from textual.widgets import Static

from tests.inspector.views.made_recordings import Made, S, busy_server
from tests.inspector.views.test_pictures import NOW, alone
from whorl.inspector.asking.client import NoAnswer, NotInspected
from whorl.inspector.tables.tasks import TaskFigures
from whorl.inspector.tables.waits import TaskWait
from whorl.inspector.views.live import Live
from whorl.inspector.views.pictures import ProcessPicture

NEVER = 3600.0  # seconds: the test looks by itself


class Shown:
    """A source of pictures that the test sets."""

    def __init__(self, pid: int | None, *pictures: ProcessPicture) -> None:
        self.pid = pid
        self.pictures = list(pictures)
        self.looks = 0
        self.error: Exception | None = None

    def look(self) -> list[ProcessPicture]:
        self.looks += 1
        if self.error is not None:
            raise self.error
        return self.pictures


def server(pid: int = 7) -> ProcessPicture:
    made = busy_server(Made(pid), NOW)
    made.loop(1, run_began_ns=NOW - 10 * S, sleep_began_ns=NOW - 9 * S)
    return alone(made)


def drive(app: Live, act: Callable[[Any], Awaitable[None]], size: tuple[int, int] = (80, 24)) -> None:
    """Run the view in a terminal of this size, on asyncio's own loop or on Whorl's alike."""

    async def main() -> None:
        async with app.run_test(size=size) as pilot:
            await act(pilot)

    asyncio.run(main())


def text_of(app: Live) -> str:
    body = app.query_one("#body", Static)
    return "\n".join(
        "".join(segment.text for segment in strip).rstrip()
        for strip in (body.render_line(row) for row in range(body.size.height))
    )


def of_one(**options: Any) -> tuple[Live, Shown]:
    source = Shown(7, server())
    return Live(source, NEVER, **options), source


def test_one_process_is_shown_in_depth() -> None:
    app, _ = of_one()

    async def act(pilot: Any) -> None:
        text = text_of(app)
        assert "stuck in handle_order (order 4711) for 3.2 s" in text
        assert "longest calls" in text
        assert max(map(len, text.splitlines())) <= 80

    drive(app, act)


def test_keys_choose_a_loop() -> None:
    app, _ = of_one()

    async def act(pilot: Any) -> None:
        await pilot.press("down", "down", "down")
        assert "loop 2  asleep" in text_of(app)
        await pilot.press("up")
        assert "loop 1  stuck" in text_of(app)

    drive(app, act)


def test_all_processes_are_a_table_and_enter_shows_one() -> None:
    ones: dict[int, Shown] = {}

    def source_of(pid: int) -> Shown:
        ones[pid] = Shown(pid, server(pid))
        return ones[pid]

    app = Live(Shown(None, server(7), server(8)), NEVER, source_of=source_of)

    async def act(pilot: Any) -> None:
        assert text_of(app).splitlines()[0].split()[:2] == ["PID", "PROGRAM"]
        await pilot.press("down", "down", "enter")
        assert text_of(app).startswith("8  app.py")
        await pilot.press("escape")
        assert text_of(app).splitlines()[0].split()[:2] == ["PID", "PROGRAM"]

    drive(app, act)


def test_process_that_goes_away_is_not_chosen_any_more() -> None:
    source = Shown(None, server(7), server(8))
    app = Live(source, NEVER, source_of=lambda pid: Shown(pid, server(pid)))

    async def act(pilot: Any) -> None:
        await pilot.press("down", "down")
        source.pictures = [server(7)]
        app.look()
        await pilot.press("enter")
        assert text_of(app).startswith("7  app.py")
        source.pictures = []
        await pilot.press("escape")
        assert "No process is recorded." in text_of(app)

    drive(app, act)


def test_stalls_have_their_stacks_and_the_key_again_leads_back() -> None:
    app, _ = of_one()

    async def act(pilot: Any) -> None:
        await pilot.press("s")
        assert 'File "x.py", line 9' in text_of(app)
        await pilot.press("s")
        assert "loop 1  stuck" in text_of(app)

    drive(app, act)


def test_tasks_are_asked_for_in_a_thread() -> None:
    asked: list[int] = []

    def tasks_of(pid: int) -> list[list[TaskFigures]]:
        asked.append(pid)
        wait = TaskWait("task", "the task another", tasks=(2,))
        first = TaskFigures(1, "one task", "main", "waiting", ("app.py", 3, "main"), wait)
        return [[first, TaskFigures(2, "[red]another", "main", "scheduled", None)]]

    app, _ = of_one(tasks_of=tasks_of)

    async def act(pilot: Any) -> None:
        await pilot.press("t")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert asked == [7]
        assert "one task  main  app.py:3\n│ waits for the task another\n└─ [red]another" in text_of(app)
        await pilot.press("escape")
        assert "loop 1  stuck" in text_of(app)

    drive(app, act)


def test_process_that_does_not_answer_is_told() -> None:
    def tasks_of(pid: int) -> None:
        raise NoAnswer(4194300)

    app, _ = of_one(tasks_of=tasks_of)

    async def act(pilot: Any) -> None:
        await pilot.press("t")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "did not answer within 2 s" in text_of(app)

    drive(app, act)


def test_pause_looks_no_more() -> None:
    app, source = of_one()

    async def act(pilot: Any) -> None:
        await pilot.press("p")
        looks = source.looks
        app.look()
        assert source.looks == looks
        assert "paused" in text_of(app)
        await pilot.press("p")
        assert source.looks > looks  # its timer looks, too
        assert "paused" not in text_of(app)

    drive(app, act)


def test_process_that_has_ended_stays_with_the_reason() -> None:
    app, source = of_one()

    async def act(pilot: Any) -> None:
        source.error = NotInspected("there is no process 7, and no recording of one")
        app.look()
        await pilot.pause()
        text = text_of(app)
        assert "there is no process 7" in text
        assert "loop 1  stuck" in text

    drive(app, act)


def test_markup_and_control_characters_of_names_stay_text() -> None:
    made = busy_server(Made(), NOW)
    made.loop(call_name=made.name("[bold]x[/]\x1b]0;t\x07"))
    app = Live(Shown(7, alone(made)), NEVER)

    async def act(pilot: Any) -> None:
        assert "stuck in [bold]x[/]\\x1b]0;t\\x07" in text_of(app)

    drive(app, act)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (60, 10), (20, 5)])
def test_every_size_is_drawn(size: tuple[int, int]) -> None:
    app = Live(Shown(None, server(7), server(8)), NEVER, source_of=lambda pid: Shown(pid, server(pid)))

    async def act(pilot: Any) -> None:
        for key in ("down", "enter", "s", "escape", "escape", "up"):
            await pilot.press(key)
            assert text_of(app)

    drive(app, act, size)


def test_q_ends_the_view() -> None:
    app, _ = of_one()

    async def act(pilot: Any) -> None:
        await pilot.press("q")

    drive(app, act)
    assert app.return_code == 0
