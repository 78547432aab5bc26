"""The program's own frames are named first, and stay when a stack is shortened."""

from __future__ import annotations

import json
import os

import whorl
from whorl.inspector.recorded import MOST_STALL, fitted
from whorl.inspector.tables.own_frames import Frame, folded, package_of, place_in
from whorl.inspector.watching.stalls import Stack, Stall

SITE = "/venv/lib/python3.13/site-packages"


def frames_of(*names: str) -> tuple[Frame, ...]:
    """Return frames, `file:line function` each."""
    frames = []
    for name in names:
        place, _, function = name.partition(" ")
        file, _, line = place.partition(":")
        frames.append(Frame(file, int(line), function, "a line of it"))
    return tuple(frames)


#: As a coroutine of FastAPI's that calls `requests`.
SERVICE = frames_of(
    "/app/main.py:90 <module>",
    "/usr/lib/python3.13/asyncio/runners.py:120 Runner.run",
    f"{SITE}/uvicorn/protocols/http.py:409 RequestResponseCycle.run_asgi",
    *(f"{SITE}/fastapi/routing.py:{line} app" for line in range(6)),
    *(f"{SITE}/starlette/routing.py:{line} wrapped" for line in range(5)),
    "/app/sick.py:23 price",
    f"{SITE}/requests/api.py:73 get",
    *(f"{SITE}/urllib3/connectionpool.py:{line} urlopen" for line in range(14)),
    "/usr/lib/python3.13/socket.py:719 SocketIO.readinto",
)


def stall_of(frames: tuple[Frame, ...], stacks: int = 1) -> Stall:
    return Stall(
        *(1, "loop", 2, 3, 2_000_000_000, True, 5, 6, 1_900_000_000, 8, None),
        "RequestResponseCycle.run_asgi",
        "Task-7",
        tuple(Stack(number, frames, "recvfrom", None, False) for number in range(stacks)),
    )


def test_package_of_a_file_is_told_by_its_path() -> None:
    assert package_of(f"{SITE}/requests/api.py") == "requests"
    assert package_of(f"{SITE}/six.py") == "six"
    assert package_of("/usr/lib/python3/dist-packages/yaml/loader.py") == "yaml"
    assert package_of("/usr/lib64/python3.14t/asyncio/tasks.py") == "asyncio"
    assert package_of("<frozen importlib._bootstrap>") == "importlib"
    assert package_of(os.__file__) == "os"
    assert package_of(os.path.join(os.path.dirname(whorl.__file__), "core", "loop.py")) == "whorl"
    assert package_of("/app/sick.py") == package_of("<string>") == ""


def test_place_is_the_innermost_own_line_and_the_function_that_it_called() -> None:
    assert place_in(SERVICE) == "price (sick.py:23) → requests.get"
    assert place_in(frames_of("/app/sick.py:5 outer.<locals>.inner")) == "inner (sick.py:5)"
    assert place_in(SERVICE[1:9]) == ""


def test_folded_stack_keeps_own_frames_and_says_what_is_left_out() -> None:
    kept = folded(SERVICE, 6, "RequestResponseCycle.run_asgi")
    assert [frame.function for frame in kept] == [
        "<module>",
        "1 frame of asyncio",
        "RequestResponseCycle.run_asgi",
        "11 frames of fastapi, starlette",
        "price",
        "13 frames of requests, urllib3",
        "urlopen",
        "urlopen",
        "SocketIO.readinto",
    ]
    assert [frame.line for frame in kept if not frame.file] == [0, 0, 0]


def test_folded_stack_that_is_short_enough_is_unchanged() -> None:
    assert folded(SERVICE, len(SERVICE)) is SERVICE


def test_folded_stack_of_own_frames_alone_keeps_the_inner_ones() -> None:
    frames = frames_of(*(f"/app/deep.py:{line} visit" for line in range(50)))
    assert [frame.line for frame in folded(frames, 3)] == [0, 47, 48, 49]


def test_stall_names_the_own_line_in_its_headline_and_in_its_stack() -> None:
    stall = stall_of(SERVICE)
    first, *rest = stall.text().splitlines()
    assert first.startswith("price (sick.py:23) → requests.get in Task-7 blocked the loop for 2 s")
    assert '  File "/app/sick.py", line 23, in price' in rest
    assert "  … 11 frames of fastapi, starlette" in rest
    assert stall.call == "RequestResponseCycle.run_asgi"


def test_stall_of_others_code_alone_is_named_by_its_call() -> None:
    stall = stall_of((*SERVICE[:9], *SERVICE[15:]))
    assert stall.place == ""
    assert stall.summary().startswith("RequestResponseCycle.run_asgi in Task-7 blocked")


def test_recorded_stall_has_the_own_line_in_each_stack() -> None:
    data = fitted(stall_of(SERVICE, stacks=8))
    assert len(data) <= MOST_STALL
    found = json.loads(data)
    assert len(found["stacks"]) == 8
    assert all(["/app/sick.py", 23, "price", "a line of it"] in stack["frames"] for stack in found["stacks"])
    assert found["place"] == "price (sick.py:23) → requests.get"
    assert "line 23, in price" in found["text"]
