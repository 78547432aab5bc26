"""The part of a page that shows stalls: each with its reason, its shares of time and its stacks."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from whorl.formats.units import count, duration_ns
from whorl.inspector.recordings import pictures
from whorl.inspector.recordings.stall import Line, RecordedStall, Stack
from whorl.inspector.recordings.summary import ADVICE, Summary
from whorl.inspector.recordings.timeline import Timeline

#: How many calls are shown of a stack in which the call of the loop is not found.
MOST_LINES = 12
CLASSES = {"running": "running", "asleep": "asleep", "waiting for a processor": "starved"}


def stalls(summary: Summary) -> Iterator[str]:
    """Yield the cards of the stalls, the longest first."""
    if not summary.stalls:
        return
    yield f"<h2>{count(len(summary.stalls), 'stall')}</h2>"
    says = "A callback, or many together, kept the loop from everything else. The longest comes first."
    yield f'<p class="weak">{says}</p>'
    alike: dict[tuple[str, str, Line | None], list[RecordedStall]] = {}
    for stall in sorted(summary.stalls, key=lambda stall: (-stall.length_ns, stall.number)):
        stack = stall.best_stack
        innermost = stack.lines[-1] if stack and stack.lines else None
        alike.setdefault((stall.call, stall.reason, innermost), []).append(stall)
    for group in alike.values():
        yield _stall(group[0], group[1:], summary.timeline)


def _stall(stall: RecordedStall, others: list[RecordedStall], timeline: Timeline) -> str:
    """Return the card of a stall, and of others at the same line of code."""
    numbers = "".join(
        f'<span class="no" id="stall-{one.number}">{one.number}</span>'
        for one in sorted([stall, *others], key=lambda one: one.number)
    )
    task = f' <span class="weak">in {escape(stall.task)}</span>' if stall.task else ""
    took = duration_ns(stall.length_ns) + ("" if stall.ended else ", not ended")
    parts = [(CLASSES[words], words, part) for words, part in stall.shares.items()]
    legend = "".join(
        f'<span><i class="{kind}"></i>{words} {duration_ns(part)}</span>'
        for kind, words, part in parts
        if part
    )
    if stall.collected_ns:
        legend += (
            f'<span><i class="gc"></i>of that, in the collector {duration_ns(stall.collected_ns)}</span>'
        )
    when = duration_ns(max(0, stall.began_ns - timeline.begin_ns))
    why = stall.why[:1].upper() + stall.why[1:]
    also = ", ".join(duration_ns(one.length_ns) for one in others[:8]) + (" …" if len(others) > 8 else "")
    again = (
        f' <span class="weak">It happened {count(len(others), "more time")}: {also}.</span>' if others else ""
    )
    return (
        f'<div class="card stall"><h3>{numbers}<code>{escape(stall.name)}</code>{task}'
        f'<span class="took">{took}</span></h3>'
        f"<p>{escape(why)}. {ADVICE[stall.reason]}. "
        f'<span class="weak">{when} after the beginning.</span>{again}</p>'
        f'{pictures.shares(parts, stall.length_ns)}<p class="key">{legend}</p>{_stacks(stall)}</div>'
    )


def _stacks(stall: RecordedStall) -> str:
    best = stall.best_stack
    if best is None or not best.lines:
        return '<p class="weak">No stack was taken.</p>'
    others = [stack for stack in stall.stacks if stack is not best and stack.lines != best.lines]
    if not others:
        return _stack(best, stall)
    more = "".join(_stack(stack, stall) for stack in others)
    title = count(len(others), "other stack")
    return f"{_stack(best, stall)}<details><summary>{title}</summary>{more}</details>"


def _stack(stack: Stack, stall: RecordedStall) -> str:
    """Return a stack: what is outside of the call is folded away, and the innermost line is strong."""
    names = [line.function for line in stack.lines]
    first = names.index(stall.call) if stall.call in names else max(0, len(names) - MOST_LINES)
    outer = [escape(_line(line)) for line in stack.lines[:first]]
    inner = [escape(_line(line)) for line in stack.lines[first:]]
    inner[-1:] = [f"<b>{line}</b>" for line in inner[-1:]]
    text = f'<pre><span class="far">{_stack_title(stack)}</span>\n' + "\n".join(inner) + "</pre>"
    if outer:
        title = f"{count(len(outer), 'call')} around it"
        text += f"<details><summary>{title}</summary><pre>{chr(10).join(outer)}</pre></details>"
    return text


def _line(line: Line) -> str:
    if not line.file:
        return f"  {line}"
    source = f"\n      {line.source}" if line.source else ""
    return f"  {line.file}:{line.line}, in {line.function}{source}"


def _stack_title(stack: Stack) -> str:
    late = ", when the lock was free again" if stack.late else ""
    return f"after {duration_ns(stack.after_ns)}{late}"
