"""The published numbers: their tables in README.md and docs/performance.md, and their chart."""

import json
import re
from pathlib import Path
from typing import Any

import bars
import cases
import loops
from programs.program import Program

ROOT = Path(__file__).resolve().parent.parent
PUBLISHED = ROOT / "bench" / "published.json"
PAGES = (ROOT / "README.md", ROOT / "docs" / "performance.md")
CHART = ROOT / "docs" / "operations.svg"
REFERENCE = "uvloop"
MAIN = "cpython-3.14"  # the table of the README and its chart
OTHERS = set(loops.PEERS) - {REFERENCE}
TITLES = {"asyncio": "asyncio", "whorl": "Whorl", "whorl-server": "Whorl, `server_loop`"}  # of columns
BEST = "best other"
PROGRAM = "program/"  # what the names of programs begin with
SERVER = "http/"
SERVERS = {
    "http/uvicorn/10": "uvicorn, 10 connections",
    "http/aiohttp/10": "aiohttp, 10 connections",
    "http/httptools/10": "httptools' parser alone, 10 connections",
    "http/fastapi/100": "FastAPI under uvicorn, 100 connections",
    "http/hypercorn/100": "Hypercorn, 100 connections",
}

# The cases of the README's chart, and those of its table.
BARS = {
    "TCP echo": "tcp/protocol/1KiB/100",
    "Streams": "tcp/streams/1KiB/100",
    "TLS echo": "tls/protocol/1KiB/100",
    "UDP echo": "udp/datagram/1KiB/10",
    "call_soon": "micro/call_soon/batch-1000",
    "Tasks": "micro/create_task/await",
}
HEADLINES = (
    "tcp/protocol/1KiB/100",
    "tcp/streams/1KiB/100",
    "tcp/sock/1KiB/100",
    "tls/protocol/1KiB/100",
    "http/uvicorn/100",
    "micro/call_soon/chain",
    "micro/call_later/cancel",
    "micro/create_task/await",
)

Tables = dict[str, dict[str, Any]]


class IncompleteError(Exception):
    """A run lacks cases that the pages show; the message says which."""


def read() -> Tables:
    """Return the published tables by name."""
    tables: Tables = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    return tables


def publish(result: Path) -> None:
    """Put the numbers of a run in the place of the published ones of that Python."""
    document = json.loads(result.read_text(encoding="utf-8"))
    tables = read()
    if any(case.startswith(PROGRAM) for case in document["cases"]):
        name, table = programs_of(document, tables)
    elif all(case.startswith(SERVER) for case in document["cases"]):
        name, table = "http", servers_of(document, tables)
    else:
        name, table = table_of(document, tables)
        check_complete(str(result), table)
    tables[name] = table
    PUBLISHED.write_text(_json(tables), encoding="utf-8")


def check_complete(result: str, table: dict[str, Any]) -> None:
    """Raise IncompleteError if a table lacks a case of the chart or of the README."""
    missing = {*BARS.values(), *HEADLINES} - {row["case"] for row in table["rows"]}
    if missing:
        raise IncompleteError(f"{result} lacks {', '.join(sorted(missing))}")


def table_of(document: dict[str, Any], tables: Tables) -> tuple[str, dict[str, Any]]:
    """Return the table of a run and its name. Rows keep the titles that the published tables have."""
    titles = _titles(tables)
    name = "cpython-" + _minor(document)
    others = sorted(OTHERS & set(document["loops"]))
    rows = []
    for case, measured in document["cases"].items():
        ratios = {loop: _ratio(found) for loop, found in measured.items()}
        values = [ratios.get("asyncio"), _best(ratios, others), ratios.get("whorl")]
        if values[-1] is not None:
            rows.append({"title": titles.get(case, f"`{case}`"), "case": case, "values": values})
    versions = _versions(document, others)
    return name, {
        "about": f"{_about(document)} *Best other* is the best of {versions or 'no other loop'}.",
        "command": _command(document, "--all"),
        "loops": [TITLES["asyncio"], BEST, TITLES["whorl"]],
        "rows": rows,
    }


def servers_of(document: dict[str, Any], tables: Tables) -> dict[str, Any]:
    """Return the table of a run's HTTP servers, with a column for each loop that ran beside uvloop."""
    titles = SERVERS | _titles(tables)
    names = [loop for loop in document["loops"] if loop not in (REFERENCE, "C")]
    rows = [
        {
            "title": titles.get(case, f"`{case}`"),
            "case": case,
            "values": [_ratio(measured[loop]) if loop in measured else None for loop in names],
        }
        for case, measured in document["cases"].items()
    ]
    versions = _versions(document, [loop for loop in names if loop in OTHERS])
    return {
        "about": f"{_about(document)} The others: {versions or 'none'}.",
        "command": _command(document, "--cases http/"),
        "loops": [TITLES.get(loop, loop) for loop in names],
        "rows": rows,
    }


def programs_of(document: dict[str, Any], tables: Tables) -> tuple[str, dict[str, Any]]:
    """Return the table of a run of programs and its name: Whorl by processor time and by the clock."""
    programs = {case.name: case.title for case in cases.PROGRAMS if isinstance(case, Program)}
    titles = programs | SERVERS | _titles(tables)
    rows = [
        {
            "title": titles.get(case, f"`{case}`"),
            "case": case,
            "values": [_ratio(found), _ratio(found, "ratios")],
        }
        for case, measured in document["cases"].items()
        if (found := measured.get("whorl")) and _ratio(found)
    ]
    minor = _minor(document)
    return "programs" if MAIN.endswith(minor) else f"programs-{minor}", {
        "about": f"{_about(document)} The loop is Whorl.",
        "command": _command(document, "--programs"),
        "loops": ["by processor time", "by wall time"],
        "rows": rows,
    }


def _versions(document: dict[str, Any], names: list[str]) -> str:
    return ", ".join(f"{loop} {document['loops'][loop].partition(' ')[0]}" for loop in names)


def _titles(tables: Tables) -> dict[str, str]:
    return {row["case"]: row["title"] for table in tables.values() for row in table["rows"]}


def _about(document: dict[str, Any]) -> str:
    python = document["machine"]["python"].partition(" ")[0]
    build = " Whorl is compiled for a profile, as in its wheels." if _is_profiled(document) else ""
    rounds = document["options"]["rounds"]
    return f"Measured on {document['when'][:10]}: CPython {python}, {rounds} rounds.{build}"


def _minor(document: dict[str, Any]) -> str:
    return ".".join(document["machine"]["python"].split(".")[:2])


def _command(document: dict[str, Any], arguments: str) -> str:
    config = " CONFIG=profiled" if _is_profiled(document) else ""
    return f'make bench PYTHON=python{_minor(document)}{config} ARGS="{arguments}"'


def _is_profiled(document: dict[str, Any]) -> bool:
    return "-profiled" in document["loops"].get("whorl", "")


def write() -> None:
    """Write the tables into the pages, and draw the chart."""
    tables = read()
    for page in PAGES:
        page.write_text(refreshed(page.read_text(encoding="utf-8"), tables), encoding="utf-8")
    CHART.write_text(chart(tables), encoding="utf-8")


def refreshed(text: str, tables: Tables) -> str:
    """Return the text of a page with the published numbers between its marks."""

    def replaced(mark: re.Match[str]) -> str:
        return f"{mark[1]}\n{_marked(mark[2], tables)}\n{mark[3]}"

    return re.sub(r"(<!-- bench: ([\w.-]+) -->)\n.*?\n(<!-- end -->)", replaced, text, flags=re.DOTALL)


def chart(tables: Tables) -> str:
    """Return the bar chart of the README, as SVG."""
    table = tables[MAIN]
    values = {row["case"]: row["values"] for row in table["rows"]}
    groups = {title: values[case] for title, case in BARS.items()}
    return bars.draw(groups, table["loops"], REFERENCE)


def _marked(name: str, tables: Tables) -> str:
    if name == "headlines":
        return _headlines(tables[MAIN])
    return _section(tables[name])


def _headlines(table: dict[str, Any]) -> str:
    rows = {row["case"]: row for row in table["rows"]}
    asyncio, best, whorl = table["loops"]
    lines = [_line("", asyncio, REFERENCE, best, whorl), _line("---", *["--:"] * 4)]
    for case in HEADLINES:
        first, *rest = map(_cell, rows[case]["values"])
        lines.append(_line(rows[case]["title"], first, "1.00", *rest))
    return "\n".join(lines)


def _section(table: dict[str, Any]) -> str:
    has_notes = any("note" in row for row in table["rows"])
    notes = ["remark"] if has_notes else []
    lines = [table["about"], ""]
    if table["command"]:
        lines += [f"Measure it with `{table['command']}`.", ""]
    if not table["rows"]:
        return "\n".join(lines).rstrip()
    lines.append(_line("", "case", *table["loops"], *notes))
    lines.append(_line("---", "---", *["--:"] * len(table["loops"]), *["---"] * len(notes)))
    for row in table["rows"]:
        note = [row.get("note", "")] if has_notes else []
        lines.append(_line(row["title"], f"`{row['case']}`", *map(_cell, row["values"]), *note))
    return "\n".join(lines)


def _line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _ratio(found: dict[str, Any], kind: str = "cpu_ratios") -> float | None:
    ratio = found[kind].get(REFERENCE)
    return round(ratio["median"], 2) if ratio else None


def _best(ratios: dict[str, float | None], others: list[str]) -> float | None:
    return max((ratio for loop in others if (ratio := ratios.get(loop)) is not None), default=None)


def _json(tables: Tables) -> str:
    """Return the tables as JSON, with a line for each row: so a change can be read."""
    return (
        "{\n"
        + ",\n".join(f" {_dump(name)}: {_json_table(table)}" for name, table in tables.items())
        + "\n}\n"
    )


def _json_table(table: dict[str, Any]) -> str:
    entries = [f"  {_dump(key)}: {_dump(value)}" for key, value in table.items() if key != "rows"]
    rows = ",\n".join(f"   {_dump(row)}" for row in table["rows"])
    return "{\n" + ",\n".join([*entries, f'  "rows": [\n{rows}\n  ]']) + "\n }"


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
