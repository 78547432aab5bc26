"""The places of an inspector's files: the directories of a process, also those of a container."""

from __future__ import annotations

import os
import re

from whorl.inspector.asking import directory


def folders(pid: int, user: int) -> list[str]:
    """Return the directories where a process may have its files: by its environment, and by this one's."""
    paths = list(dict.fromkeys([directory.path_for(environment_of(pid), user), *own_folders(user)]))
    # A process in a container has another root.
    return [*paths, *(f"/proc/{pid}/root{path}" for path in paths)]


def opened(folder: str, user: int) -> int:
    """Return a descriptor of a directory that is this user's. Raises Refused for another one, and OSError."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    if os.fstat(place).st_uid != user:
        os.close(place)
        raise directory.Refused(f"{folder} belongs to another user")
    return place


def own_folders(user: int) -> list[str]:
    """Return the directories of a user, as this process's environment and the defaults have them."""
    environments: tuple[dict[str, str], ...] = (
        dict(os.environ),
        {"XDG_RUNTIME_DIR": f"/run/user/{user}"},
        {},
    )
    return list(dict.fromkeys(directory.path_for(environment, user) for environment in environments))


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment that a process began with; nothing if it is not to be seen."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = (entry.partition(b"=") for entry in file.read().split(b"\0"))
            return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
    except OSError:
        return {}


def own_number(pid: int) -> int:
    """Return the number that a process has for itself, which in a container is another one."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            found = re.search(r"^NSpid:.*?(\d+)$", file.read(), re.MULTILINE)
    except OSError:
        return pid
    return pid if found is None else int(found[1])
