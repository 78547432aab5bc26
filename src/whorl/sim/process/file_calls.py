"""The kernel's calls for files, answered by the host's disk; `core/kernel/files.py` has the contract."""

from __future__ import annotations

import errno
import itertools
import os
import stat
from typing import TYPE_CHECKING, Any

from whorl.core.file_system_status import FileSystemStatus
from whorl.core.kernel.files import TIME_NOW, TIME_OMIT
from whorl.core.kernel.kernel import Kernel
from whorl.sim.errors import RealDescriptor
from whorl.sim.files.disk import Disk, Place
from whorl.sim.files.disk_file import DiskFile
from whorl.sim.files.file import FIRST_FD
from whorl.sim.files.inodes import Directory, Inode, Link, Regular
from whorl.sim.wire.timeline import MICROSECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from whorl.sim.chance.decisions import Stream
    from whorl.sim.chance.faults import Faults
    from whorl.sim.files.file import DescriptorTable, File
    from whorl.sim.process.digest import Digest
    from whorl.sim.process.owner import ProcessHost

    Path = str | bytes
    Views = list[memoryview]

#: How long a disk takes to write: the shortest time, and the steps up to the longest.
SYNC_NS = 200 * MICROSECOND
SYNC_STEPS = 16

_BLOCK = 4096
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


class DiskCalls(Kernel):
    """The part of a simulated kernel for files, and what all its calls need."""

    def __init__(self, host: ProcessHost, table: DescriptorTable, digest: Digest, faults: Faults) -> None:
        Kernel.__init__(self)
        self.host: ProcessHost = host
        self._name = digest.number(host.name)
        self.table: DescriptorTable = table
        self.digest: Digest = digest
        self.faults: Faults = faults
        self._disk: Disk = host.disk
        self._disk_errors: Stream = host.decisions.stream(f"{host.name}/disk/errors")
        self._disk_times: Stream = host.decisions.stream(f"{host.name}/disk/times")
        self._cached: Stream = host.decisions.stream(f"{host.name}/disk/cached")

    def is_alive(self) -> bool:
        """Return whether this process still runs in a world that does."""
        return not self.host.is_dead and self.host.kernel is self

    def note(self, call: str, *details: Any) -> None:
        """Add a call to the digest."""
        self._add_call(call, details)

    def _add_call(self, call: str, details: tuple[Any, ...]) -> None:
        self.digest.add(self.host.time(), self._name, call, details)

    def _file(self, fd: int) -> File | None:
        file = self.table.find(fd)
        if file is None and 0 <= fd < FIRST_FD and self.is_alive():
            raise RealDescriptor(f"descriptor {fd} was given to a simulated loop")
        return file

    # Finding files.

    def _locate(self, path: Path, follow: bool = True) -> Place | int:
        """Return where a path leads, or the negative error number; a dead process gets EBADF."""
        if not self.is_alive():
            return -errno.EBADF
        return self._disk.locate(os.fsdecode(path), follow)

    def _inode(self, file: Path | int, follow: bool = True) -> Inode | int:
        if isinstance(file, int):
            opened = self._opened(file)
            return opened if isinstance(opened, int) else opened.inode
        place = self._locate(file, follow)
        if isinstance(place, int):
            return place
        return place.inode if place.inode is not None else -errno.ENOENT

    def _opened(self, fd: int) -> DiskFile | int:
        file = self._file(fd)
        if file is None:
            return -errno.EBADF
        return file if isinstance(file, DiskFile) else -errno.EINVAL

    def _fault(self) -> int:
        """Return the error by which the disk fails this time; 0: it works."""
        return errno.EIO if self._disk_errors.happens(self.faults.eio) else 0

    def _answer(self, call: str, *details: Any) -> Any:
        """Note a call whose result comes last; return that."""
        self.note(call, *details)
        return details[len(details) - 1]

    # Answers from memory. Whether the memory has them is the seed's.

    def _is_cached(self) -> bool:
        return self._cached.happens(self.faults.executor)

    def status_now(self, path: Path, follow: bool) -> Any:
        found = self.status(path, follow) if self._is_cached() else -errno.EAGAIN
        return -errno.EAGAIN if isinstance(found, int) else found

    def content_now(self, path: Path, limit: int) -> Any:
        inode = self._inode(path) if self._is_cached() else -errno.EAGAIN
        if not isinstance(inode, Regular) or inode.size() > limit:
            return -errno.EAGAIN
        return self._answer("content", path, bytes(inode.data))

    def open_now(self, path: Path) -> int:
        if not self._is_cached() or not isinstance(self._inode(path), Regular):
            return -errno.EAGAIN
        fd = self.open_file(path, os.O_RDONLY, 0)
        return fd if fd >= 0 else -errno.EAGAIN

    def read_now(self, fd: int, size: int, offset: int) -> Any:
        if size < 0 or offset < 0 or not self._is_cached():
            return -errno.EAGAIN
        data = self.read_file(fd, size, offset)
        return -errno.EAGAIN if isinstance(data, int) else data

    def learn_mount(self, path: Path) -> None:
        """There is one file system, which is local."""

    # Descriptors.

    def open_file(self, path: Path, flags: int, mode: int) -> int:
        inode = self._opening(path, flags, mode)
        if isinstance(inode, int):
            return self._answer("open", path, flags, inode)  # type: ignore[no-any-return]
        if flags & os.O_TRUNC and isinstance(inode, Regular) and flags & os.O_ACCMODE != os.O_RDONLY:
            inode.resize(0)
            inode.touch(self._disk.now())
        file = DiskFile(self.host, self._disk, inode, flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC))
        return self._answer("open", path, flags, self.table.add(file))  # type: ignore[no-any-return]

    def _opening(self, path: Path, flags: int, mode: int) -> Inode | int:
        """Return the file to open, a new one if need be, or the negative error number."""
        disk, creates = self._disk, bool(flags & os.O_CREAT)
        is_new = bool(creates and flags & os.O_EXCL)
        place = self._locate(path, follow=not (flags & os.O_NOFOLLOW or is_new))
        if isinstance(place, int):
            return place
        inode = place.inode
        if len(self.table.files) >= self.table.limit:
            return -errno.EMFILE
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            made: Inode = disk.new(Regular, mode & 0o777)
            return made if isinstance(inode, Directory) else -errno.ENOTDIR
        if inode is None:
            if not creates:
                return -errno.ENOENT
            if os.fsdecode(path).endswith("/"):
                return -errno.EISDIR
            made = disk.new(Regular, mode & 0o777 & ~0o022)
            disk.change((place.directory, place.name, made))
            return made
        return self._refusal(inode, flags, is_new) or inode

    def _refusal(self, inode: Inode, flags: int, is_new: bool) -> int:
        """Return why a file cannot be opened so; 0: it can."""
        if is_new:
            return -errno.EEXIST
        if isinstance(inode, Link):
            return -errno.ELOOP
        if isinstance(inode, Directory):
            writes = flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_CREAT
            return -errno.EISDIR if writes else 0
        if flags & os.O_DIRECTORY:
            return -errno.ENOTDIR
        return 0 if isinstance(inode, Regular) else -errno.ENXIO

    def close_fd(self, fd: int) -> int:
        # A dead process has none: a finalizer that comes late has nothing to complain of.
        return self.close(fd) if self.is_alive() else 0

    def read_file(self, fd: int, size: int, offset: int) -> bytes | int:
        file, fault = self._opened(fd), self._fault()
        if isinstance(file, int):
            return file
        data = -fault if fault else file.read(size) if offset < 0 else file.read_at(size, offset)
        return self._answer("pread", fd, size, offset, data)  # type: ignore[no-any-return]

    def read_file_into(self, fd: int, views: Views, offset: int) -> int:
        data = self.read_file(fd, sum(view.nbytes for view in views), offset)
        if isinstance(data, int):
            return data
        rest = memoryview(data)
        for view in views:
            target = view.cast("B")
            part = rest[: len(target)]
            target[: len(part)] = part
            rest = rest[len(part) :]
        return len(data)

    def write_file(self, fd: int, views: Views, offset: int) -> int:
        file = self._opened(fd)
        if isinstance(file, int):
            return file
        data = b"".join(views)
        fault = self._fault()
        if not fault and self._disk_errors.happens(self.faults.enospc):
            fault = errno.ENOSPC
        written = -fault if fault else file.write(data) if offset < 0 else file.write_at(data, offset)
        return self._answer("pwrite", fd, data, offset, written)  # type: ignore[no-any-return]

    def seek_file(self, fd: int, offset: int, whence: int) -> int:
        file = self._file(fd)
        if file is not None and not isinstance(file, DiskFile):
            return -errno.ESPIPE
        if file is None:
            return -errno.EBADF if self.is_alive() else 0
        return file.seek(offset, whence)

    def copy_range(self, target: int, source: int, offset: int, count: int) -> int:
        data = self.read_file(source, count, offset)
        return data if isinstance(data, int) else self.write_file(target, [memoryview(data)], -1)

    def clone_file(self, target: int, source: int) -> int:
        return -errno.EOPNOTSUPP

    def await_writable(self, fd: int) -> None:
        """Return at once: files always take data."""

    def sendfile(self, target: int, source: int, offset: int, count: int) -> int:
        file = self._opened(source)
        if isinstance(file, int):
            return file
        data = file.read_at(count, offset)
        if isinstance(data, int) or not data:
            return data if isinstance(data, int) else 0
        return self.send(target, data, 0)

    def file_size(self, fd: int) -> int:
        file = self._opened(fd)
        if isinstance(file, int):
            return file
        return file.inode.size() if isinstance(file.inode, Regular) else -errno.EINVAL

    def set_file_position(self, fd: int, offset: int) -> int:
        return min(0, self.seek_file(fd, offset, os.SEEK_SET))

    def status_of(self, fd: int) -> Any:
        file = self._file(fd)
        if file is None:
            return -errno.EBADF
        if isinstance(file, DiskFile):
            return file.inode.status()
        mode = file.kind | (0o777 if stat.S_ISSOCK(file.kind) else 0o600)
        return os.stat_result((mode, fd, 1, 1, 0, 0, 0, 0, 0, 0))

    def resize(self, fd: int, size: int) -> int:
        file = self._opened(fd)
        if isinstance(file, int):
            return file
        inode = file.inode
        if size < 0 or not isinstance(inode, Regular) or not file.may_write():
            return -errno.EINVAL
        if size - inode.size() > self._disk.room():
            return -errno.ENOSPC
        inode.resize(size)
        inode.touch(self._disk.now())
        return self._answer("ftruncate", fd, size, 0)  # type: ignore[no-any-return]

    def sync(self, fd: int, data_only: bool) -> int:
        file, fault = self._opened(fd), self._fault()
        if isinstance(file, int):
            return file
        self.host.spent += SYNC_NS * (1 + self._disk_times.decide(SYNC_STEPS, self.faults.executor))
        if not fault:
            file.sync()
        elif isinstance(file.inode, Regular):
            file.inode.fail_sync()
        return self._answer("fsync", fd, -fault)  # type: ignore[no-any-return]

    # Attributes.

    def status(self, path: Path, follow: bool) -> Any:
        inode = self._inode(path, follow)
        return self._answer("stat", path, inode if isinstance(inode, int) else inode.status())

    def file_system(self, path: Path) -> FileSystemStatus | int:
        inode = self._inode(path)
        if isinstance(inode, int):
            return inode
        total = self._disk.capacity if self._disk.capacity is not None else 1 << 40
        free = min(self._disk.room(), total) // _BLOCK
        return FileSystemStatus(0xEF53, _BLOCK, total // _BLOCK, free, free, 1 << 20, 1 << 19, _BLOCK)

    def set_times(self, file: Path | int, accessed: int, modified: int, follow: bool) -> int:
        inode = self._inode(file, follow)
        if isinstance(inode, int):
            return inode
        now = self._disk.now()
        for name, value in (("accessed", accessed), ("modified", modified)):
            if value != TIME_OMIT:
                setattr(inode, name, now if value == TIME_NOW else value)
        inode.changed = now
        return 0

    def access(self, path: Path, mode: int) -> int:
        inode = self._inode(path)
        if isinstance(inode, int):
            return inode
        refuses = mode & os.X_OK and not inode.mode & 0o111
        return -errno.EACCES if refuses else 0

    def set_mode(self, file: Path | int, mode: int) -> int:
        inode = self._inode(file)
        if isinstance(inode, int):
            return inode
        inode.mode = stat.S_IFMT(inode.mode) | (mode & 0o7777)
        inode.changed = self._disk.now()
        return self._answer("chmod", file, mode, 0)  # type: ignore[no-any-return]

    def set_owner(self, file: Path | int, user: int, group: int, follow: bool) -> int:
        inode = self._inode(file, follow)
        if isinstance(inode, int):
            return inode
        inode.owner = inode.owner if user < 0 else user
        inode.group = inode.group if group < 0 else group
        inode.changed = self._disk.now()
        return 0

    # Names.

    def _linked(self, path: Path) -> Place | int:
        """Return where a name is that must exist, links not followed."""
        place = self._locate(path, follow=False)
        return -errno.ENOENT if not isinstance(place, int) and place.inode is None else place

    def _free(self, path: Path) -> Place | int:
        """Return where a name is that must not exist."""
        place = self._locate(path, follow=False)
        return -errno.EEXIST if not isinstance(place, int) and place.inode is not None else place

    def remove_directory(self, path: Path) -> int:
        place = self._linked(path)
        if isinstance(place, int):
            return place
        if not isinstance(place.inode, Directory):
            return -errno.ENOTDIR
        if place.inode.entries or place.inode is self._disk.root:
            return -errno.ENOTEMPTY
        self._disk.change((place.directory, place.name, None))
        return self._answer("rmdir", path, 0)  # type: ignore[no-any-return]

    def remove_file(self, path: Path) -> int:
        place = self._linked(path)
        if isinstance(place, int):
            return place
        if isinstance(place.inode, Directory):
            return -errno.EISDIR
        self._disk.change((place.directory, place.name, None))
        self.host.unix_names.pop(os.fsdecode(path), None)
        return self._answer("unlink", path, 0)  # type: ignore[no-any-return]

    def make_directory(self, path: Path, mode: int) -> int:
        return self._make(path, lambda: self._disk.new(Directory, mode & 0o777 & ~0o022))

    def symlink(self, path: Path, new_path: Path) -> int:
        return self._make(new_path, lambda: self._disk.new(Link, os.fsdecode(path)))

    def link(self, path: Path, new_path: Path) -> int:
        place = self._linked(path)
        if isinstance(place, int):
            return place
        if isinstance(place.inode, Directory):
            free = self._free(new_path)  # A name that is no good is the first error.
            return free if isinstance(free, int) else -errno.EPERM
        return self._make(new_path, lambda: place.inode)

    def _make(self, path: Path, make: Callable[[], Any]) -> int:
        place = self._free(path)
        if isinstance(place, int):
            return place
        self._disk.change((place.directory, place.name, make()))
        return self._answer("make", path, 0)  # type: ignore[no-any-return]

    def random_name(self) -> str:
        return "".join(_LETTERS[byte % len(_LETTERS)] for byte in self.host.random_bytes(6))

    def rename(self, path: Path, new_path: Path) -> int:
        old, new = self._locate(path, follow=False), self._locate(new_path, follow=False)
        if isinstance(old, int) or isinstance(new, int):
            return old if isinstance(old, int) else new  # type: ignore[return-value]
        if old.inode is None:
            return -errno.ENOENT
        if old.inode is new.inode:
            return 0
        if isinstance(old.inode, Directory):
            if f"{new.path}/".startswith(f"{old.path}/"):
                return -errno.EINVAL
            if new.inode is not None and not isinstance(new.inode, Directory):
                return -errno.ENOTDIR
        elif isinstance(new.inode, Directory):
            return -errno.EISDIR
        if isinstance(new.inode, Directory) and new.inode.entries:
            return -errno.ENOTEMPTY
        self._disk.change((old.directory, old.name, None), (new.directory, new.name, old.inode))
        return self._answer("rename", path, new_path, 0)  # type: ignore[no-any-return]

    def read_link(self, path: Path) -> Any:
        place = self._linked(path)
        if isinstance(place, int):
            return place
        if not isinstance(place.inode, Link):
            return -errno.EINVAL
        return os.fsencode(place.inode.target) if isinstance(path, bytes) else place.inode.target

    def real_path(self, path: Path) -> Any:
        place = self._locate(path)
        if isinstance(place, int) or place.inode is None:
            return place if isinstance(place, int) else -errno.ENOENT
        return os.fsencode(place.path) if isinstance(path, bytes) else place.path

    # Directories.

    def open_directory(self, path: Path) -> Any:
        inode = self._inode(path)
        if isinstance(inode, int):
            return inode
        if not isinstance(inode, Directory):
            return -errno.ENOTDIR
        make = os.fsencode if isinstance(path, bytes) else str
        return Entries([(make(name), stat.S_IFMT(each.mode)) for name, each in inode.entries.items()])

    def read_directory(self, entries: Iterator[Any], limit: int) -> Any:
        return list(itertools.islice(entries, limit))

    # The names of UNIX sockets.

    def path_status(self, path: Path) -> tuple[int, int] | int:
        inode = self._inode(path)
        return inode if isinstance(inode, int) else (inode.mode, inode.number)

    def unlink(self, path: Path) -> int:
        return self.remove_file(path)

    def change_mode(self, path: Path, mode: int) -> int:
        return self.set_mode(path, mode)


class Entries:
    """The entries of a directory that are still to be read: names and types."""

    def __init__(self, rows: list[tuple[Any, int]]) -> None:
        self._rows: Iterator[tuple[Any, int]] = iter(rows)

    def __iter__(self) -> Entries:
        return self

    def __next__(self) -> tuple[Any, int]:
        return next(self._rows)

    def close(self) -> None:
        """Return no more entries."""
        self._rows = iter(())
