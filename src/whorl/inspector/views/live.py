"""The live view, by Textual: recordings drawn anew after each interval.

It reads files, and needs nothing of the processes. Only the tasks are asked for, in a thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Footer, Static

from whorl.inspector.asking import client
from whorl.inspector.tables.tasks import TaskFigures, arranged, tree_of
from whorl.inspector.tables.wording import shown
from whorl.inspector.views import drawing
from whorl.inspector.views.drawing import Line, Piece, line
from whorl.inspector.views.pictures import ProcessPicture
from whorl.inspector.views.sources import Source

STYLES = {
    "": "",
    "title": "bold",
    "head": "bold #6cb6ff",
    "dim": "#8f959e",
    "good": "#57b86b",
    "warn": "#e5b567",
    "bad": "bold #ff6b6b",
    "alarm": "bold #ffffff on #a32020",
}
CHOSEN = "on #2b3f55"
#: How many utilizations are kept for the curve.
HISTORY = 60
#: The seconds after which the second look follows the first, as rates need two.
SECOND_LOOK = 0.2
#: The fewest rows that details below a table need.
LEAST_DETAILS = 9

Key = tuple[int, int]


class Looks(Protocol):
    """A source of pictures, as the view needs it."""

    pid: int | None

    def look(self) -> list[ProcessPicture]:
        """Return the pictures. Raises Failed."""


def _tasks_of(pid: int) -> list[list[TaskFigures]]:
    return client.rows(pid, "tasks", TaskFigures)


class Live(App[None]):
    """The live view of all recordings, or of that of one process."""

    TITLE: str | None = "whorl top"
    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False
    CSS: ClassVar[str] = """
    Screen { background: #101418; }
    #pane { height: 1fr; scrollbar-size-vertical: 1; }
    #body { width: 100%; height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "choose(-1)", "Choose", key_display="↑↓", priority=True),
        Binding("down", "choose(1)", show=False, priority=True),
        Binding("enter", "open", "Details", key_display="⏎", priority=True),
        Binding("escape", "leave", "Back", key_display="esc", priority=True),
        Binding("s", "stalls", "Stalls"),
        Binding("t", "tasks", "Tasks"),
        Binding("d", "ended", "Ended"),
        Binding("p", "pause", "Pause"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
    ]

    def __init__(
        self,
        source: Looks,
        interval: float,
        *,
        source_of: Callable[[int], Looks] = Source,
        tasks_of: Callable[[int], list[list[TaskFigures]]] = lambda pid: client.rows(
            pid, "tasks", TaskFigures
        ),
    ) -> None:
        """Show the pictures of `source`; `source_of` makes that of one process."""
        super().__init__()
        self._all = source if source.pid is None else None
        self._one = None if source.pid is None else source
        self._source_of = source_of
        self._tasks_of = tasks_of
        self._interval = interval
        self._mode = "all" if source.pid is None else "one"
        self._processes: list[ProcessPicture] = []
        self._process: ProcessPicture | None = None
        self._chosen: Key = (source.pid or 0, 0)
        self._history: dict[Key, deque[float]] = {}
        self._tasks: list[str] = []
        self._trouble = ""  # why there is no newer picture
        self._is_paused = False
        self._most_ended: int | None = drawing.MOST_ENDED

    @property
    def process(self) -> ProcessPicture | None:
        """The process that is shown in depth."""
        return self._process

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        with VerticalScroll(id="pane"):
            yield Static(id="body")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to look."""
        self.query_one("#pane").focus()
        self.look()
        self.set_timer(min(SECOND_LOOK, self._interval), self.look)
        self.set_interval(self._interval, self.look)

    def on_resize(self) -> None:
        """Draw for the new size."""
        self._draw()

    # Looking.

    def look(self) -> None:
        """Read the recordings anew, unless the view is paused."""
        if self._is_paused:
            return
        try:
            if self._mode == "all" and self._all is not None:
                self._processes = self._all.look()
                self._keep_choice()
            if self._one is not None:
                self._process = self._one.look()[0]
            self._trouble = ""
        except client.Failed as error:  # The process has ended, and has taken its recording with it.
            self._trouble = shown(str(error))
        for process in (*self._processes, *([self._process] if self._process else [])):
            for loop in process.loops:
                history = self._history.setdefault((process.pid, loop.loop), deque(maxlen=HISTORY))
                history.append(loop.utilization)
        self._draw()

    def _keep_choice(self) -> None:
        """See that something is chosen, and read that process in depth if it is shown."""
        keys = self._keys()
        if keys and self._chosen not in keys:
            self._chosen = next((key for key in keys if key[0] == self._chosen[0]), keys[0])
        pid = self._chosen[0]
        if not keys:
            self._one = self._process = None
        elif self._one is None or self._one.pid != pid:
            self._one, self._process = self._source_of(pid), None

    def _keys(self) -> list[Key]:
        """Return all that can be chosen now, in their order."""
        lines = self._overview() if self._mode == "all" else self._details(0)
        return list(dict.fromkeys(line.key for line in lines if line.key is not None))

    # Drawing.

    def _overview(self) -> list[Line]:
        return drawing.overview(self._processes, self.size.width, self._most_ended)

    def _details(self, height: int) -> list[Line]:
        if self._process is None:
            return []
        number = self._chosen[1] if self._chosen[0] == self._process.pid else 0
        loop = drawing.chosen_loop(self._process, number)
        key = (self._process.pid, 0 if loop is None else loop.loop)
        history = list(self._history.get(key, ()))
        return drawing.details(self._process, self.size.width, number, history, height)

    def _lines(self) -> list[Line]:
        height = max(1, self.size.height - 1 - bool(self._trouble or self._is_paused))
        if self._mode == "tasks":
            return [line(text) for text in self._tasks]
        if self._mode == "stalls" and self._process is not None:
            return drawing.stalls(self._process, self.size.width)
        if self._mode == "one":
            return self._details(height)[:height]
        lines = self._overview()
        if self._process is not None and height - len(lines) >= LEAST_DETAILS:
            lines.append(line(Piece("─" * self.size.width, "dim")))
            lines += self._details(height - len(lines))
        return lines[:height] if self._chosen_place(lines) < height else lines

    def _chosen_place(self, lines: Sequence[Line]) -> int:
        return next((place for place, line in enumerate(lines) if line.key == self._chosen), 0)

    def _draw(self) -> None:
        if not self.query("#body"):
            return
        lines = self._lines()
        if self._trouble or self._is_paused:
            notice = self._trouble or "paused: p goes on"
            lines.append(line(Piece(notice, "alarm")))
        chosen = self._chosen if self._mode in ("all", "one") and len(self._keys()) > 1 else None
        text = Text(no_wrap=self._mode != "stalls", end="")
        for place, one in enumerate(lines):
            if place:
                text.append("\n")
            is_chosen = one.key is not None and one.key == chosen
            for piece in one.pieces:
                text.append(piece.text, f"{STYLES[piece.style]} {CHOSEN if is_chosen else ''}".strip())
            if is_chosen:
                chosen = None  # The line below it, which says more of the same loop, is not marked.
        self.query_one("#body", Static).update(text)

    # Keys.

    def action_choose(self, step: int) -> None:
        """Choose another loop; in a text, scroll."""
        if self._mode in ("stalls", "tasks"):
            self.query_one("#pane").scroll_relative(y=step, animate=False)
            return
        keys = self._keys()
        if keys:
            place = keys.index(self._chosen) + step if self._chosen in keys else 0
            self._chosen = keys[min(len(keys) - 1, max(0, place))]
            if self._mode == "all":
                self._keep_choice()
                self._read_chosen()
        self._draw()

    def _read_chosen(self) -> None:
        """Read the chosen process, if it was not read yet."""
        if self._one is not None and self._process is None:
            try:
                self._process = self._one.look()[0]
            except client.Failed as error:
                self._trouble = shown(str(error))

    def action_open(self) -> None:
        """Show the chosen process in depth."""
        if self._mode == "all" and self._one is not None:
            self._show("one")

    def action_leave(self) -> None:
        """Go back: from a text to the process, from a process to the table of all."""
        if self._mode in ("stalls", "tasks"):
            self._show("one")
        elif self._all is not None:
            self._show("all")

    def action_stalls(self) -> None:
        """Show the stalls with their stacks, and again to go back."""
        self._show("one" if self._mode == "stalls" else "stalls")

    def action_tasks(self) -> None:
        """Ask the process for its tasks. A thread waits for the answer."""
        if self._process is None:
            return
        pid = self._process.pid
        self._tasks = [f"Asking process {pid} …"]
        self._show("tasks")
        self.run_worker(lambda: self._ask_for_tasks(pid), thread=True, exclusive=True, exit_on_error=False)

    def _ask_for_tasks(self, pid: int) -> None:
        try:
            trees = [tree_of(arranged(rows)) for rows in self._tasks_of(pid)]
            lines = [text for tree in trees for text in [*tree.split("\n"), ""]]
        except client.Failed as error:
            lines = [shown(str(error))]
        self.call_from_thread(self._show_tasks, lines or ["No loop has run yet."])

    def _show_tasks(self, lines: list[str]) -> None:
        self._tasks = lines
        self._draw()

    def action_ended(self) -> None:
        """Show all processes that have ended, or only the last ones."""
        self._most_ended = drawing.MOST_ENDED if self._most_ended is None else None
        self._keep_choice()
        self._draw()

    def action_pause(self) -> None:
        """Look no more, or go on."""
        self._is_paused = not self._is_paused
        self.look()
        self._draw()

    def _show(self, mode: str) -> None:
        if mode != "all" and self._process is None:
            return
        self._mode = mode
        self.query_one("#pane").scroll_to(y=0, animate=False)
        self.look()
        self._draw()
