"""The published numbers: their tables in README.md and docs/performance.md, and their chart."""

import json
import re
from collections.abc import Callable
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

Table = dict[str, Any]
Tables = dict[str, Table]


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


def check_complete(result: str, table: Table) -> None:
    """Raise IncompleteError if a table lacks a case of the chart or of the README."""
    missing = {*BARS.values(), *HEADLINES} - {row["case"] for row in table["rows"]}
    if missing:
        raise IncompleteError(f"{result} lacks {', '.join(sorted(missing))}")


def table_of(document: Table, tables: Tables) -> tuple[str, Table]:
    """Return the table of a run and its name: the best of the others in a column."""
    others = sorted(OTHERS & set(document["loops"]))

    def values(measured: Table) -> list[float | None]:
        best = max((ratio for loop in others if (ratio := _ratio(measured, loop))), default=None)
        return [_ratio(measured, "asyncio"), best, _ratio(measured, "whorl")]

    about = f"*Best other* is the best of {_versions(document, others) or 'no other loop'}."
    columns = [TITLES["asyncio"], BEST, TITLES["whorl"]]
    table = _table(document, tables, about, "--all", columns, values)
    table["rows"] = [row for row in table["rows"] if row["values"][-1]]
    return "cpython-" + _minor(document), table


def servers_of(document: Table, tables: Tables) -> Table:
    """Return the table of a run's HTTP servers, with a column for each loop that ran beside uvloop."""
    names = [loop for loop in document["loops"] if loop not in (REFERENCE, loops.LIMIT)]
    versions = _versions(document, [loop for loop in names if loop in OTHERS])
    about, columns = f"The others: {versions or 'none'}.", [TITLES.get(loop, loop) for loop in names]
    return _table(
        document, tables, about, "--cases http/", columns,
        lambda measured: [_ratio(measured, loop) for loop in names],
    )  # fmt: skip


def programs_of(document: Table, tables: Tables) -> tuple[str, Table]:
    """Return the table of a run of programs and its name: Whorl by processor time and by the clock."""
    table = _table(
        document, tables, "The loop is Whorl.", "--programs", ["by processor time", "by wall time"],
        lambda measured: [_ratio(measured, "whorl"), _ratio(measured, "whorl", "ratios")],
    )  # fmt: skip
    table["rows"] = [row for row in table["rows"] if row["values"][0]]
    minor = _minor(document)
    return "programs" if MAIN.endswith(minor) else f"programs-{minor}", table


def _table(
    document: Table, tables: Tables, about: str, arguments: str, columns: list[str],
    values: Callable[[Table], list[float | None]],
) -> Table:  # fmt: skip
    """Return a table of a run. Rows keep the titles that the published tables have."""
    titles = {case.name: case.title for case in cases.PROGRAMS if isinstance(case, Program)}
    titles |= {row["case"]: row["title"] for table in tables.values() for row in table["rows"]}
    python, rounds = document["machine"]["python"].partition(" ")[0], document["options"]["rounds"]
    is_profiled = "-profiled" in document["loops"].get("whorl", "")
    build = " Whorl is compiled for a profile, as in its wheels." if is_profiled else ""
    config = " CONFIG=profiled" if is_profiled else ""
    return {
        "about": f"Measured on {document['when'][:10]}: CPython {python}, {rounds} rounds.{build} {about}",
        "command": f'make bench PYTHON=python{_minor(document)}{config} ARGS="{arguments}"',
        "loops": columns,
        "rows": [
            {"title": titles.get(case, f"`{case}`"), "case": case, "values": values(measured)}
            for case, measured in document["cases"].items()
        ],
    }


def _versions(document: Table, names: list[str]) -> str:
    return ", ".join(f"{loop} {document['loops'][loop].partition(' ')[0]}" for loop in names)


def _minor(document: Table) -> str:
    return ".".join(document["machine"]["python"].split(".")[:2])


def write() -> None:
    """Write the tables into the pages, and draw the chart."""
    tables = read()
    for page in PAGES:
        page.write_text(refreshed(page.read_text(encoding="utf-8"), tables), encoding="utf-8")
    CHART.write_text(chart(tables), encoding="utf-8")


def refreshed(text: str, tables: Tables) -> str:
    """Return the text of a page with the published numbers between its marks."""

    def replaced(mark: re.Match[str]) -> str:
        shown = _headlines(tables[MAIN]) if mark[2] == "headlines" else _section(tables[mark[2]])
        return f"{mark[1]}\n{shown}\n{mark[3]}"

    return re.sub(r"(<!-- bench: ([\w.-]+) -->)\n.*?\n(<!-- end -->)", replaced, text, flags=re.DOTALL)


def chart(tables: Tables) -> str:
    """Return the bar chart of the README, as SVG."""
    table = tables[MAIN]
    values = {row["case"]: row["values"] for row in table["rows"]}
    groups = {title: values[case] for title, case in BARS.items()}
    return bars.draw(groups, table["loops"], REFERENCE)


def _headlines(table: Table) -> str:
    rows = {row["case"]: row for row in table["rows"]}
    asyncio, best, whorl = table["loops"]
    lines = [_line("", asyncio, REFERENCE, best, whorl), _line("---", *["--:"] * 4)]
    for case in HEADLINES:
        first, *rest = map(_cell, rows[case]["values"])
        lines.append(_line(rows[case]["title"], first, "1.00", *rest))
    return "\n".join(lines)


def _section(table: Table) -> str:
    lines = [table["about"], ""]
    if table["command"]:
        lines += [f"Measure it with `{table['command']}`.", ""]
    columns = table["loops"]
    lines += [_line("", "case", *columns), _line("---", "---", *["--:"] * len(columns))]
    for row in table["rows"]:
        lines.append(_line(row["title"], f"`{row['case']}`", *map(_cell, row["values"])))
    return "\n".join(lines)


def _line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _ratio(measured: Table, loop: str, kind: str = "cpu_ratios") -> float | None:
    ratio = measured[loop][kind].get(REFERENCE) if loop in measured else None
    return round(ratio["median"], 2) if ratio else None


def _json(tables: Tables) -> str:
    """Return the tables as JSON, with a line for each row: so a change can be read."""
    shown = []
    for name, table in tables.items():
        entries = [f"  {_dump(key)}: {_dump(value)}" for key, value in table.items() if key != "rows"]
        rows = ",\n".join(f"   {_dump(row)}" for row in table["rows"])
        entries.append(f'  "rows": [\n{rows}\n  ]')
        shown.append(f" {_dump(name)}: {{\n" + ",\n".join(entries) + "\n }")
    return "{\n" + ",\n".join(shown) + "\n}\n"


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
