"""The disk of a host. It outlives the host's processes, and power cuts in part.

A new name reaches the disk by a sync of its directory, the content of a file by a sync of the file. After a
power cut, the disk has a first part of the changes of names that were not synced, as with a journal.
"""

from __future__ import annotations

import errno
import os
import posixpath
from typing import TYPE_CHECKING, Any, NamedTuple

from whorl.sim.files.inodes import Directory, Inode, Link, Regular, SocketName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from whorl.sim.chance.decisions import Stream

#: The directories of a new disk.
FIRST_DIRECTORIES = ("/tmp", "/run", "/etc", "/home", "/srv", "/var/lib", "/var/log", "/var/run", "/var/tmp")

#: The first inode number, the longest name, and how many links a path may go through (man 7 path_resolution).
FIRST_INODE = 2
LONGEST_NAME = 255
MOST_LINKS = 40

#: One change of names, as one step: in which directory which name means which file from now on.
Change = tuple[tuple[Directory, str, "Inode | None"], ...]


class Place(NamedTuple):
    """The end of a path: the directory, the name in it, and the file, if there is one."""

    directory: Directory
    name: str
    inode: Inode | None
    path: str  #: the absolute path without links


class Disk:
    """A tree of files. Calls return negative error numbers, as the kernel does; `read` and `write` raise."""

    def __init__(self, clock: Callable[[], int], chance: Stream) -> None:
        self._clock = clock
        self._chance = chance
        self._numbers = FIRST_INODE
        self._journal: list[Change] = []  # the changes of names that the disk does not have
        self.capacity: int | None = None  #: how many bytes all files may have; None: any number
        self.opener: Callable[[str, str], Any] | None = None  # how the host's process opens a file
        self._root: Directory | None = None

    @property
    def root(self) -> Directory:
        """The directory that holds all others; made when it is first asked for."""
        root = self._root
        if root is None:
            root = self._root = self.new(Directory, 0o755)
            root.links = 1
            for path in FIRST_DIRECTORIES:
                self.make_directories(path)
        return root

    # For programs and tests.

    def open(self, path: str | os.PathLike[str], mode: str = "r") -> Any:
        """Open a file as Python's `open` does, in the process that runs on this host.

        Its descriptor is the process's: `os.fsync` takes it. Raises OSError.
        """
        if self.opener is None:
            raise OSError(errno.EBADF, "no process runs on this host")
        return self.opener(os.fspath(path), mode)

    def read(self, path: str | os.PathLike[str]) -> bytes:
        """Return the content of a file, from outside. Raises OSError."""
        place = self._found(path)
        if not isinstance(place.inode, Regular):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        return bytes(place.inode.data)

    def write(self, path: str | os.PathLike[str], content: bytes) -> None:
        """Put a file on the disk, from outside, with its directories, and sync it. Raises OSError."""
        name = os.fspath(path)
        self.make_directories(posixpath.dirname(name) or "/")
        place = self._found(name, missing=True)
        inode = place.inode
        if inode is None:
            inode = self.new(Regular, 0o644)
            self.change((place.directory, place.name, inode))
        if not isinstance(inode, Regular):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        inode.data[:] = content
        inode.unsynced.update(range(len(content) // 512 + 1))
        inode.sync()
        self.sync_directory(place.directory)

    def sync_names(self, path: str | os.PathLike[str]) -> None:
        """Bring the names in a directory to the disk, as a sync of its descriptor does. Raises OSError."""
        place = self._found(path)
        if not isinstance(place.inode, Directory):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fspath(path))
        self.sync_directory(place.inode)

    def exists(self, path: str | os.PathLike[str]) -> bool:
        """Return whether there is a file of this name."""
        place = self.locate(os.fspath(path))
        return not isinstance(place, int) and place.inode is not None

    def files(self) -> dict[str, bytes]:
        """Return the content of all regular files, by their paths."""
        return {path: bytes(inode.data) for path, inode in self._walk() if isinstance(inode, Regular)}

    def make_directories(self, path: str) -> None:
        """Make a directory and those above it, from outside; no power cut loses them."""
        at = ""
        for part in path.strip("/").split("/"):
            at += "/" + part
            place = self._found(at, missing=True)
            if place.inode is None:
                self.change((place.directory, place.name, self.new(Directory, 0o755)))
                self.sync_directory(place.directory)

    def _found(self, path: str | os.PathLike[str], missing: bool = False) -> Place:
        place = self.locate(os.fspath(path))
        code = -place if isinstance(place, int) else 0 if missing or place.inode is not None else errno.ENOENT
        if code:
            raise OSError(code, os.strerror(code), os.fspath(path))
        return place  # type: ignore[return-value]

    # For the kernel.

    def new(self, kind: Callable[..., Any], *args: Any) -> Any:
        """Return a new file without a name."""
        number = self._numbers
        self._numbers += 1
        return kind(number, *args, self._clock())

    def now(self) -> int:
        """Return the time for `st_mtime`, in nanoseconds."""
        return self._clock()

    def locate(self, path: str, follow: bool = True) -> Place | int:
        """Follow a path; return where it leads, or the negative error number.

        Relative paths begin at the root. `follow` tells whether a link at the end is followed.
        """
        if not path:
            return -errno.ENOENT
        parts = _parts(path)
        needs_directory = path.endswith(("/", "/.", "/.."))
        trail: list[tuple[str, Directory]] = [("", self.root)]
        links = 0
        while parts:
            name = parts.pop()
            directory = trail[-1][1]
            if name == "..":
                if len(trail) > 1:
                    trail.pop()
                continue
            if len(os.fsencode(name)) > LONGEST_NAME:
                return -errno.ENAMETOOLONG
            inode = directory.entries.get(name)
            if isinstance(inode, Link) and (parts or follow or needs_directory):
                links += 1
                if links > MOST_LINKS:
                    return -errno.ELOOP
                if inode.target.startswith("/"):
                    del trail[1:]
                parts.extend(_parts(inode.target))
            elif isinstance(inode, Directory):
                trail.append((name, inode))
                if not parts:
                    break
            elif parts:
                return -errno.ENOENT if inode is None else -errno.ENOTDIR
            else:
                if inode is not None and needs_directory:
                    return -errno.ENOTDIR
                return Place(directory, name, inode, "/".join([*(each[0] for each in trail), name]))
        name, inode = trail[-1]
        whole = "/".join(each[0] for each in trail) or "/"
        return Place(trail[-2][1] if len(trail) > 1 else self.root, name or ".", inode, whole)

    def change(self, *steps: tuple[Directory, str, Inode | None]) -> None:
        """Change names, in one step."""
        now = self._clock()
        for directory, name, inode in steps:
            former = directory.entries.pop(name, None)
            if former is not None:
                former.links -= 1
                former.changed = now
            if inode is not None:
                directory.entries[name] = inode
                inode.links += 1
                inode.changed = now
            directory.touch(now)
        self._journal.append(steps)

    def sync_directory(self, directory: Directory) -> None:
        """Bring the names in a directory to the disk, with all that happened before to those involved."""
        involved = {id(directory)}
        written, left = [], []
        for change in reversed(self._journal):
            if any(id(step[0]) in involved for step in change):
                involved.update(id(step[0]) for step in change)
                written.append(change)
            else:
                left.append(change)
        self._journal = left[::-1]
        for change in reversed(written):
            _write(change)

    def room(self) -> int:
        """Return how many bytes there are left."""
        if self.capacity is None:
            return 1 << 62
        used = {inode.number: inode.size() for _, inode in self._walk() if isinstance(inode, Regular)}
        return max(0, self.capacity - sum(used.values()))

    def name_socket(self, path: Any) -> int:
        """Make the name of a UNIX socket; return 0 or the negative error number (man 2 bind)."""
        place = self.locate(os.fsdecode(path), follow=False)
        if isinstance(place, int):
            return place
        if place.inode is not None:
            return -errno.EADDRINUSE
        self.change((place.directory, place.name, self.new(SocketName, 0o755)))
        return 0

    # Power cuts.

    def sync_all(self) -> None:
        """Bring everything to the disk (man 2 sync)."""
        for change in self._journal:
            _write(change)
        self._journal.clear()
        for _, inode in self._walk():
            if isinstance(inode, Regular):
                inode.sync()

    def lose_power(self, torn: float) -> None:
        """Have only what the disk has; each file and name that was not synced survives in part, if at all.

        `torn` is how likely a part survives; if none does, the disk is as the last syncs have left it.
        """
        for change in self._journal[: self._chance.decide(len(self._journal) + 1, torn)]:
            _write(change)
        self._journal.clear()
        seen: set[int] = set()
        directories = [self.root]
        files: list[Inode] = []
        for directory in directories:
            directory.entries = dict(directory.kept)
            for name in sorted(directory.entries):
                inode = directory.entries[name]
                inode.links = inode.links + 1 if inode.number in seen else 1
                if inode.number not in seen:
                    seen.add(inode.number)
                    files.append(inode)
                    if isinstance(inode, Directory):
                        directories.append(inode)
        for inode in sorted(files, key=lambda each: each.number):
            if isinstance(inode, Regular):
                inode.lose_power(self._chance, torn)

    def _walk(self) -> Iterator[tuple[str, Inode]]:
        directories = [("", self.root)]
        for path, directory in directories:
            for name, inode in directory.entries.items():
                yield f"{path}/{name}", inode
                if isinstance(inode, Directory):
                    directories.append((f"{path}/{name}", inode))


def _parts(path: str) -> list[str]:
    """Return the names in a path, the last one first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _write(change: Change) -> None:
    for directory, name, inode in change:
        directory.kept.pop(name, None)
        if inode is not None:
            directory.kept[name] = inode
