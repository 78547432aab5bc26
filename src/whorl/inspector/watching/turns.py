"""Looking at the turns of a loop: many callbacks, of which none is long, may keep it from its poll for long.

A look at a loop sees which call runs at that moment. So the calls that take most of a turn's time are those
that are seen most often, and a stall of many callbacks names these.
"""

from __future__ import annotations

from whorl.core.loop.loop import Loop
from whorl.inspector.tables.own_frames import Frame
from whorl.inspector.watching import looks
from whorl.inspector.watching.reports import Reports, changed
from whorl.inspector.watching.stacks import called_by, moment_of, source_of
from whorl.inspector.watching.stalls import Caller, Stack, Stall
from whorl.inspector.watching.text import shown
from whorl.inspector.watching.watched import (
    LongTurn,
    Shares,
    Usage,
    WatchedLoop,
    shares_of,
    usage_at,
    usage_between,
    was_lock_kept,
)

MOST_CALLERS = 8  # of one stall
MOST_CALLS = 100  # that are told apart in one turn
LOOKS_PER_THRESHOLD = 4
LONG_STALL_NS = 1_000_000_000


class Turns:
    """Looks at the turn that a loop is in."""

    def __init__(self, reports: Reports) -> None:
        self.reports = reports
        self.threshold_ns = 0

    def look_at(
        self,
        watched: WatchedLoop,
        loop: Loop | None,
        progress: looks.Progress | None,
        earlier: Usage,
        looked: int,
        now: int,
        starved: int,
        kept: int,
        unseen_ns: int,
    ) -> bool:
        """Look at the turn of a loop; return whether one has ended that was only kept from a processor.

        C code has kept the lock for `kept` since the last look. A callback of this turn that nobody saw was a
        stall of `unseen_ns`.
        """
        began = 0 if loop is None or progress is None or progress[4] else looks.turn_began(loop)
        turn, has_starved = watched.turn, False
        if turn is not None and turn.began_ns != began:
            watched.turn = None
            has_starved = self._has_ended(watched, turn, progress, earlier, now, starved)
        if loop is None or progress is None or not began:
            return has_starved
        if watched.turn is None:
            after = max(0, began - looked)
            base = usage_between(earlier, watched.latest, after, after, now - began)
            watched.turn = LongTurn(watched, began, base, self.threshold_ns, starved)
        watched.turn.lock_kept_ns += min(kept, now - began)
        watched.turn.stalled_ns += unseen_ns
        self._goes_on(watched, watched.turn, loop, progress, now)
        return has_starved

    def _goes_on(
        self, watched: WatchedLoop, turn: LongTurn, loop: Loop, progress: looks.Progress, now: int
    ) -> None:
        turn.is_many |= progress[3] > 1 or (turn.key is not None and turn.key != progress[:5])
        turn.key, turn.turns, turn.seen_ns = progress[:5], progress[0], now
        turn.callbacks = looks.batch_size(loop)
        age = now - turn.began_ns
        if LOOKS_PER_THRESHOLD * age < self.threshold_ns:
            return
        shares = shares_of(turn, watched.latest, now, False)
        # After C code that kept the lock, what runs is not what took the time.
        if not was_lock_kept(turn, age, shares):
            _note_call(turn, loop, progress, now)
        if not turn.is_many or age < turn.next_ns or watched.stall is not None:
            return
        runs_for = 0 if watched.key is None else now - watched.began_ns
        alone = turn.stalled_ns + runs_for
        if age - alone < self.threshold_ns:
            return
        turn.asleep_ns = shares.asleep_ns or 0
        if turn.stall is None and shares.own_ns - alone < self.threshold_ns:
            turn.is_starving = True
            return
        is_new = turn.stall is None
        stall = self._update(turn, turn.stall or self.reports.begin(turn, now), shares, now, ended=False)
        while turn.next_ns <= age:
            turn.next_ns *= 2
        if is_new:
            self.reports.notify(stall)
        if not turn.is_logged and age >= max(LONG_STALL_NS, 8 * self.threshold_ns):
            turn.is_logged = True
            self.reports.log(stall)

    def _has_ended(
        self,
        watched: WatchedLoop,
        turn: LongTurn,
        progress: looks.Progress | None,
        earlier: Usage,
        now: int,
        starved: int,
    ) -> bool:
        """Report a turn that has ended if it was long; return whether it only had no processor."""
        end = turn.seen_ns
        if progress is None:
            end = now
        elif progress[0] - turn.turns <= 1:  # Else it is not known when it ended after that.
            slept = 0 if turn.key is None else progress[2] - turn.key[2]  # since then; the poll came after it
            reads = (progress[4], progress[5] - slept)
            end = min((read for read in reads if turn.seen_ns < read <= now), default=now)
        if turn.stall is None and (
            not turn.is_many or end - turn.began_ns - turn.stalled_ns < self.threshold_ns
        ):
            return turn.is_starving and turn.starved_before == starved
        shares = shares_of(turn, usage_at(earlier, watched.latest, now - end), end, True)
        if turn.stall is None and shares.own_ns - turn.stalled_ns < self.threshold_ns:
            return turn.starved_before == starved
        stall = turn.stall or self.reports.begin(turn, end)
        self.reports.end(turn, self._update(turn, stall, shares, end, ended=True))
        return False

    def _update(self, turn: LongTurn, stall: Stall, shares: Shares, now: int, *, ended: bool) -> Stall:
        length, looked = now - turn.began_ns, sum(turn.seen.values())
        callers = [(call, seen) for call, seen in turn.seen.most_common(MOST_CALLERS) if call]
        stall = changed(
            stall,
            length_ns=length,
            ended=ended,
            running_ns=shares.running_ns,
            starved_ns=shares.starved_ns,
            asleep_ns=shares.asleep_ns,
            gc_ns=shares.gc_ns,
            gil_held=was_lock_kept(turn, length, shares),
            call=callers[0][0] if callers else None,
            stacks=tuple(_with_sources(turn.stacks[call]) for call, _ in callers if call in turn.stacks),
            callbacks=turn.callbacks,
            callers=tuple(Caller(call, length * seen // looked) for call, seen in callers),
        )
        self.reports.keep(turn, stall)
        return stall


def _note_call(turn: LongTurn, loop: Loop, progress: looks.Progress, now: int) -> None:
    """Count the call that runs now."""
    moment = moment_of(loop, progress, now)
    if moment is None:
        return
    frames = tuple(Frame(code.co_filename, line, code.co_qualname, "") for code, line in moment.lines)
    code = moment.task_code
    is_step = code is not None and any(line is code for line, _ in moment.lines)
    call = shown(code.co_qualname) if code is not None and is_step else called_by(frames, moment.call) or ""
    if call not in turn.seen and len(turn.seen) >= MOST_CALLS:
        call = ""
    turn.seen[call] += 1
    if frames:
        turn.stacks.setdefault(call, Stack(now - turn.began_ns, frames, None, None, False))


def _with_sources(stack: Stack) -> Stack:
    """Return a stack with the text of its lines."""
    frames = tuple(
        frame if frame.source else frame._replace(source=source_of(frame.file, frame.line))
        for frame in stack.frames
    )
    return stack._replace(frames=frames)
