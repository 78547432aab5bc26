"""Requests to the file system: what each gives, with a callback and without, and how each fails."""

from __future__ import annotations

import array
import errno
import math
import os
import socket
import stat as modes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from whorl.core import Loop
from whorl.handles import FsRequest, fs

Ask = Callable[..., Any]


@pytest.fixture(params=["at once", "with a callback"])
def ask(request: pytest.FixtureRequest, loop: Loop) -> Ask:
    """Return a function that calls `fs` and returns its result, or raises its error."""

    def ask(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if request.param == "at once":
            return function(loop, *args, **options)
        seen: list[Any] = []
        started = function(loop, *args, **options, callback=lambda *answer: seen.append(answer))
        assert isinstance(started, FsRequest)
        assert started.is_pending()
        assert seen == []
        loop.run()
        ((answered, result, error),) = seen
        assert answered is started
        assert not started.is_pending()
        if error is not None:
            raise error
        return result

    return ask


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    """Yield a descriptor of an empty file that may be read and written."""
    fd = os.open(tmp_path / "open", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def refused(ask: Ask, code: int, function: Any, *args: Any) -> OSError:
    """Return the error with which a request is refused."""
    with pytest.raises(OSError, match=rf"^\[Errno {code}\] ") as caught:
        ask(function, *args)
    return caught.value


# Open files.


def test_a_file_is_opened_written_read_and_closed(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "file"
    fd = ask(fs.open, path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
    assert modes.S_IMODE(path.stat().st_mode) == 0o640
    assert not os.get_inheritable(fd)
    assert ask(fs.write, fd, b"hello world") == 11
    assert ask(fs.read, fd, 100, 6) == b"world"
    assert ask(fs.read, fd, 100) == b""
    assert ask(fs.read, fd, 3, 0) == b"hel"
    assert ask(fs.close, fd) == 0
    assert path.read_bytes() == b"hello world"


def test_a_file_opened_for_reading_is_like_any_other(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    for _ in range(2):  # the second time it is known where the file lies
        fd = ask(fs.open, tmp_path / "file", os.O_RDONLY)
        assert os.get_blocking(fd)
        assert not os.get_inheritable(fd)
        assert ask(fs.read, fd, 4) == b"cont"
        assert ask(fs.read, fd, 4) == b"ent"
        ask(fs.close, fd)


def test_reading_at_an_offset_leaves_the_position_alone(ask: Ask, fd: int) -> None:
    os.write(fd, b"0123456789")
    os.lseek(fd, 2, os.SEEK_SET)
    assert ask(fs.read, fd, 3, 5) == b"567"
    assert ask(fs.read, fd, 3) == b"234"
    assert ask(fs.read, fd, 0, 0) == b""
    assert ask(fs.read, fd, 10, 1 << 40) == b""
    assert ask(fs.read, fd, 1 << 20, 1) == b"123456789"


def test_several_buffers_are_read_and_written_in_order(ask: Ask, fd: int) -> None:
    assert ask(fs.write, fd, [b"abc", bytearray(b"defg"), memoryview(b"-h-")[1:2], b""], 2) == 8
    assert os.pread(fd, 100, 0) == b"\0\0abcdefgh"
    first, second = bytearray(4), array.array("b", bytes(3))
    assert ask(fs.read_into, fd, [first, second], 2) == 7
    assert (first, second.tobytes()) == (b"abcd", b"efg")
    assert ask(fs.read_into, fd, first, 8) == 2
    assert first == b"ghcd"
    os.lseek(fd, 3, os.SEEK_SET)
    assert ask(fs.read_into, fd, first) == 4
    assert first == b"bcde"


def test_more_buffers_are_written_than_one_call_takes(ask: Ask, fd: int) -> None:
    pieces = [b"%04d" % number for number in range(2500)]
    assert ask(fs.write, fd, pieces) == 10_000
    assert os.pread(fd, 20_000, 0) == b"".join(pieces)


def test_memory_of_any_shape_is_written(ask: Ask, fd: int) -> None:
    assert ask(fs.write, fd, [memoryview(b"a-b-c-")[::2], array.array("H", [0x3030, 0x3131])]) == 7
    assert os.pread(fd, 10, 0) == b"abc0011"


def test_a_buffer_cannot_be_resized_while_it_is_read_into(loop: Loop) -> None:
    reading, writing = os.pipe()
    buffer = bytearray(4)
    seen: list[Any] = []
    fs.read_into(loop, reading, buffer, callback=lambda request, count, error: seen.append(count))
    with pytest.raises(BufferError):
        buffer.extend(b"more")
    os.write(writing, b"abcd")
    loop.run()
    assert (seen, buffer) == ([4], b"abcd")
    buffer.extend(b"more")
    os.close(reading)
    os.close(writing)


def test_buffers_are_released_when_a_request_fails(ask: Ask) -> None:
    buffer = bytearray(4)
    refused(ask, errno.EBADF, fs.read_into, -1, buffer)
    refused(ask, errno.EBADF, fs.write, -1, [b"x", buffer])
    buffer.clear()


@pytest.mark.parametrize("function", [fs.read_into, fs.write])
def test_read_into_and_write_refuse_invalid_buffers(ask: Ask, fd: int, function: Any) -> None:
    buffer = bytearray(4)
    refused(ask, errno.EINVAL, function, fd, [])
    for wrong in (None, "text", [buffer, 3]):
        with pytest.raises(TypeError):
            ask(function, fd, wrong)
    buffer.clear()


def test_read_into_refuses_read_only_and_strided_buffers(ask: Ask, fd: int) -> None:
    with pytest.raises(TypeError):
        ask(fs.read_into, fd, b"read only")
    with pytest.raises(BufferError):
        ask(fs.read_into, fd, memoryview(bytearray(8))[::2])


@pytest.mark.parametrize(
    ("function", "args", "error"),
    [
        (fs.read, (10, -2), ValueError),
        (fs.read, (-1,), ValueError),
        (fs.read, (10, 1 << 63), OverflowError),
        (fs.read, (1 << 64,), OverflowError),
        (fs.read, ("x",), TypeError),
        (fs.write, (b"", 1 << 63), OverflowError),
        (fs.write, (b"", 1.5), TypeError),
        (fs.ftruncate, (-1,), ValueError),
        (fs.ftruncate, (1 << 63,), OverflowError),
        (fs.fchmod, (1 << 31,), OverflowError),
        (fs.fchown, (-2, 0), ValueError),
        (fs.fchown, (0, 1 << 32), OverflowError),
        (fs.futime, (1e300, 0), OverflowError),
        (fs.sendfile, (0, -1, 1), ValueError),
    ],
)
def test_numbers_out_of_bounds_are_refused(loop: Loop, fd: int, function: Any, args: Any, error: Any) -> None:
    with pytest.raises(error):
        function(loop, fd, *args)


def test_far_offsets_are_64_bits_wide(ask: Ask, fd: int) -> None:
    assert ask(fs.write, fd, b"x", 1 << 33) == 1
    assert ask(fs.fstat, fd).st_size == (1 << 33) + 1
    assert ask(fs.read, fd, 10, 1 << 33) == b"x"
    refused(ask, errno.EINVAL, fs.read, fd, 10, (1 << 63) - 1)  # as the kernel says it


def test_an_open_file_is_cut_synced_and_looked_at(ask: Ask, fd: int) -> None:
    os.write(fd, b"0123456789")
    assert ask(fs.ftruncate, fd, 4) == 0
    assert ask(fs.fsync, fd) == 0
    assert ask(fs.fdatasync, fd) == 0
    assert ask(fs.fstat, fd) == os.fstat(fd)
    assert ask(fs.fchmod, fd, 0o600) == 0
    assert modes.S_IMODE(os.fstat(fd).st_mode) == 0o600
    assert ask(fs.fchown, fd, -1, -1) == 0
    assert ask(fs.futime, fd, 1.5, 1_000_000_000) == 0
    assert (os.fstat(fd).st_atime_ns, os.fstat(fd).st_mtime_ns) == (1_500_000_000, 10**18)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (fs.close, ()),
        (fs.read, (1,)),
        (fs.read, (1, 0)),
        (fs.write, (b"x",)),
        (fs.write, (b"x", 0)),
        (fs.ftruncate, (0,)),
        (fs.fsync, ()),
        (fs.fdatasync, ()),
        (fs.fstat, ()),
        (fs.fchmod, (0o600,)),
        (fs.fchown, (-1, -1)),
        (fs.futime, (0, 0)),
        (fs.sendfile, (987_655, 0, 1)),
    ],
)
def test_a_descriptor_that_is_none_is_refused(ask: Ask, function: Any, args: Any) -> None:
    refused(ask, errno.EBADF, function, 987_654, *args)
    refused(ask, errno.EBADF, function, -1, *args)


def test_reading_a_pipe_at_an_offset_is_refused(ask: Ask) -> None:
    reading, writing = os.pipe()
    refused(ask, errno.ESPIPE, fs.read, reading, 10, 0)
    os.close(reading)
    os.close(writing)


def test_reading_a_directory_is_refused(ask: Ask, tmp_path: Path) -> None:
    fd = ask(fs.open, tmp_path, os.O_RDONLY)
    refused(ask, errno.EISDIR, fs.read, fd, 10, 0)
    ask(fs.close, fd)


def test_a_file_is_sent_to_a_file_and_to_a_socket(ask: Ask, fd: int, tmp_path: Path) -> None:
    os.write(fd, b"0123456789")
    target = os.open(tmp_path / "target", os.O_RDWR | os.O_CREAT)
    assert ask(fs.sendfile, target, fd, 3, 4) == 4
    assert ask(fs.sendfile, target, fd, 8, 100) == 2
    assert ask(fs.sendfile, target, fd, 10, 100) == 0
    assert os.pread(target, 100, 0) == b"345689"
    os.close(target)
    ours, theirs = socket.socketpair()
    assert ask(fs.sendfile, ours.fileno(), fd, 0, 10) == 10
    assert theirs.recv(100) == b"0123456789"
    ours.close()
    theirs.close()


def test_sendfile_reads_and_writes_if_the_kernel_cannot_send(ask: Ask, fd: int, tmp_path: Path) -> None:
    os.write(fd, bytes(range(256)) * 1000)
    target = os.open(tmp_path / "target", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    assert ask(fs.sendfile, target, fd, 1000, 200_000) == 200_000
    assert os.pread(target, 300_000, 0) == (bytes(range(256)) * 1000)[1000:201_000]
    os.close(target)


# The status of files.


def test_the_status_of_a_file_and_of_a_link(ask: Ask, tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"12345")
    link.symlink_to("file")
    for _ in range(2):
        for path in (file, str(file), os.fsencode(file)):
            found = ask(fs.stat, path)
            assert found == os.stat(path)
            assert found.st_mtime_ns == os.stat(path).st_mtime_ns
            assert isinstance(found, os.stat_result)
        assert ask(fs.stat, link) == os.stat(file)
        assert ask(fs.lstat, link) == os.lstat(link)
        assert ask(fs.lstat, file) == os.lstat(file)
        assert ask(fs.stat, tmp_path) == os.stat(tmp_path)


@pytest.mark.parametrize("path", ["/proc/self/status", "/dev/null", "/proc", "/"])
def test_the_status_of_what_lies_on_no_disk(ask: Ask, path: str) -> None:
    for _ in range(2):
        found = ask(fs.stat, path)
        assert (found.st_ino, found.st_mode) == (os.stat(path).st_ino, os.stat(path).st_mode)


def test_the_status_is_that_of_the_moment(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "file"
    for size in range(5):
        path.write_bytes(bytes(size))
        assert ask(fs.stat, path).st_size == size
    path.unlink()
    refused(ask, errno.ENOENT, fs.stat, path)
    path.mkdir()
    assert modes.S_ISDIR(ask(fs.stat, path).st_mode)


def test_statfs_agrees_with_statvfs(ask: Ask, tmp_path: Path) -> None:
    found, known = ask(fs.statfs, tmp_path), os.statvfs(tmp_path)
    assert (found.bsize, found.blocks, found.files) == (known.f_bsize, known.f_blocks, known.f_files)
    assert found.frsize == known.f_frsize
    assert found.type


def test_access_is_granted_or_refused(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch(0o600)
    assert ask(fs.access, path, os.F_OK) == 0
    assert ask(fs.access, path, os.R_OK | os.W_OK) == 0
    refused(ask, errno.EACCES, fs.access, path, os.X_OK)
    refused(ask, errno.EINVAL, fs.access, path, 64)


def test_times_are_set_to_the_nanosecond(ask: Ask, tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.touch()
    link.symlink_to("file")
    assert ask(fs.utime, link, 1.25, -1.75) == 0
    assert (file.stat().st_atime_ns, file.stat().st_mtime_ns) == (1_250_000_000, -1_750_000_000)
    assert ask(fs.lutime, link, 5, 6) == 0
    assert (link.lstat().st_atime_ns, link.lstat().st_mtime_ns) == (5 * 10**9, 6 * 10**9)
    assert file.stat().st_atime_ns == 1_250_000_000


def test_the_present_and_what_a_file_has_are_times_too(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    before = path.stat().st_mtime_ns
    ask(fs.utime, path, 7, math.nan)
    assert (path.stat().st_atime_ns, path.stat().st_mtime_ns) == (7 * 10**9, before)
    ask(fs.utime, path, math.nan, math.inf)
    assert path.stat().st_atime_ns == 7 * 10**9
    assert path.stat().st_mtime_ns >= before


def test_permissions_and_owners_are_set(ask: Ask, tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.touch()
    link.symlink_to("nowhere")
    assert ask(fs.chmod, file, 0o4711) == 0
    assert modes.S_IMODE(file.stat().st_mode) == 0o4711
    assert ask(fs.chown, file, os.getuid(), -1) == 0
    assert ask(fs.lchown, link, -1, os.getgid()) == 0
    refused(ask, errno.ENOENT, fs.chown, link, -1, -1)


# Names.


def test_names_are_made_changed_and_removed(ask: Ask, tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    first.write_text("x")
    assert ask(fs.rename, first, second) == 0
    assert ask(fs.link, second, first) == 0
    assert first.samefile(second)
    assert ask(fs.symlink, "second", third) == 0
    assert ask(fs.readlink, third) == "second"
    assert ask(fs.readlink, os.fsencode(third)) == b"second"
    assert ask(fs.realpath, third) == str(second.resolve())
    assert ask(fs.unlink, third) == 0
    assert ask(fs.unlink, second) == 0
    assert ask(fs.mkdir, second, 0o700) == 0
    assert modes.S_IMODE(second.stat().st_mode) == 0o700
    assert ask(fs.rmdir, second) == 0
    assert os.listdir(tmp_path) == ["first"]


def test_a_link_to_a_link_is_one_to_the_link_itself(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    ask(fs.link, tmp_path / "link", tmp_path / "other")
    assert os.readlink(tmp_path / "other") == "nowhere"


def test_temporary_names_are_ones_own(ask: Ask, tmp_path: Path) -> None:
    directory = ask(fs.mkdtemp, tmp_path / "dir-XXXXXX")
    fd, path = ask(fs.mkstemp, os.fsencode(tmp_path / "file-XXXXXX"))
    assert modes.S_IMODE(os.stat(directory).st_mode) == 0o700
    assert isinstance(path, bytes)
    assert os.path.samestat(os.stat(path), os.fstat(fd))
    assert modes.S_IMODE(os.fstat(fd).st_mode) == 0o600
    assert not os.get_inheritable(fd)
    os.close(fd)
    refused(ask, errno.EINVAL, fs.mkdtemp, tmp_path / "too-few-XXXXX")
    refused(ask, errno.EINVAL, fs.mkstemp, tmp_path / "XXXXXX.txt")
    refused(ask, errno.ENOENT, fs.mkstemp, tmp_path / "nowhere" / "XXXXXX")


def test_a_file_is_copied_with_its_permissions(ask: Ask, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    content = os.urandom(300_000)
    source.write_bytes(content)
    source.chmod(0o750)
    target.write_bytes(bytes(500_000))
    assert ask(fs.copyfile, source, target) == 0
    assert target.read_bytes() == content
    assert modes.S_IMODE(target.stat().st_mode) == 0o750
    assert ask(fs.copyfile, source, tmp_path / "third", fs.COPYFILE_FICLONE) == 0
    assert (tmp_path / "third").read_bytes() == content
    refused(ask, errno.EEXIST, fs.copyfile, source, target, fs.COPYFILE_EXCL)
    refused(ask, errno.EINVAL, fs.copyfile, source, target, 8)
    assert target.read_bytes() == content


def test_a_file_is_a_copy_of_itself(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("still here")
    (tmp_path / "link").symlink_to("file")
    assert ask(fs.copyfile, tmp_path / "file", tmp_path / "link") == 0
    assert (tmp_path / "file").read_text() == "still here"


def test_a_copy_that_must_share_its_blocks_does_or_is_not_there(ask: Ask, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"x" * 10_000)
    code = None
    try:
        ask(fs.copyfile, source, target, fs.COPYFILE_FICLONE_FORCE)
    except OSError as error:
        code = error.errno
    if code is None:
        assert target.read_bytes() == b"x" * 10_000
    else:
        assert code in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY, errno.EXDEV, errno.ENOSYS)
        assert not target.exists()


def test_copyfile_copies_a_file_of_proc(ask: Ask, tmp_path: Path) -> None:
    ask(fs.copyfile, "/proc/self/cmdline", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == Path("/proc/self/cmdline").read_bytes()


# Directories.


def test_the_entries_of_a_directory_come_by_name(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "b-dir").mkdir()
    (tmp_path / "a-file").touch()
    (tmp_path / "c-link").symlink_to("b-dir")
    os.mkfifo(tmp_path / "d-fifo")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "e-socket"))
    listener.close()
    entries = ask(fs.scandir, tmp_path)
    assert [(entry.name, entry.type.name) for entry in entries] == [
        ("a-file", "FILE"),
        ("b-dir", "DIR"),
        ("c-link", "LINK"),
        ("d-fifo", "FIFO"),
        ("e-socket", "SOCKET"),
    ]
    assert next(entry.name for entry in ask(fs.scandir, os.fsencode(tmp_path))) == b"a-file"


def test_a_directory_is_read_some_at_a_time(ask: Ask, tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / str(number)).touch()
    directory = ask(fs.opendir, tmp_path)
    found = []
    while entries := ask(fs.readdir, directory, 4):
        assert len(entries) <= 4
        found += [entry.name for entry in entries]
    assert sorted(found) == [str(number) for number in range(10)]
    assert ask(fs.closedir, directory) == 0
    refused(ask, errno.EBADF, fs.readdir, directory)
    refused(ask, errno.EBADF, fs.closedir, directory)


def test_an_open_directory_is_an_iterator(loop: Loop, tmp_path: Path) -> None:
    (tmp_path / "one").touch()
    with fs.opendir(loop, tmp_path) as directory:
        assert list(directory) == [("one", fs.DirentType.FILE)]
        assert list(directory) == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        next(directory)
    with pytest.raises(TypeError):
        fs.readdir(loop, tmp_path)  # type: ignore[call-overload]


# Errors.

ONE_PATH = [
    (fs.open, (os.O_RDONLY,)),
    (fs.open, (os.O_RDWR,)),
    (fs.stat, ()),
    (fs.lstat, ()),
    (fs.statfs, ()),
    (fs.access, (os.F_OK,)),
    (fs.utime, (0, 0)),
    (fs.lutime, (0, 0)),
    (fs.chmod, (0o600,)),
    (fs.chown, (-1, -1)),
    (fs.lchown, (-1, -1)),
    (fs.unlink, ()),
    (fs.rmdir, ()),
    (fs.mkdir, ()),
    (fs.scandir, ()),
    (fs.opendir, ()),
    (fs.readlink, ()),
    (fs.realpath, ()),
    (fs.mkdtemp, ()),
    (fs.mkstemp, ()),
]
TWO_PATHS = [fs.rename, fs.link, fs.copyfile]


@pytest.mark.parametrize(("function", "args"), ONE_PATH, ids=lambda value: getattr(value, "__name__", ""))
def test_an_error_names_the_path(ask: Ask, tmp_path: Path, function: Any, args: Any) -> None:
    missing = str(tmp_path / "nowhere" / "file-XXXXXX")
    error = refused(ask, errno.ENOENT, function, missing, *args)
    assert isinstance(error, FileNotFoundError)
    assert (error.filename, error.filename2) == (missing, None)
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "below-XXXXXX"
    assert refused(ask, errno.ENOTDIR, function, below, *args).filename == str(below)
    long = "x" * 300 + "XXXXXX"
    assert refused(ask, errno.ENAMETOOLONG, function, long, *args).filename == long


@pytest.mark.parametrize("function", TWO_PATHS, ids=lambda value: value.__name__)
def test_an_error_names_both_paths(ask: Ask, tmp_path: Path, function: Any) -> None:
    error = refused(ask, errno.ENOENT, function, tmp_path / "nowhere", os.fsencode(tmp_path / "new"))
    assert (error.filename, error.filename2) == (str(tmp_path / "nowhere"), os.fsencode(tmp_path / "new"))


@pytest.mark.parametrize(("function", "args"), ONE_PATH, ids=lambda value: getattr(value, "__name__", ""))
def test_a_path_that_is_none_is_refused(loop: Loop, function: Any, args: Any) -> None:
    for wrong in (None, 3, 1.5, ["x"]):
        with pytest.raises(TypeError):
            function(loop, wrong, *args, callback=print)
    for wrong in ("a\0b", b"a\0b", "\udcff\ud800"):
        with pytest.raises(ValueError):  # noqa: PT011
            function(loop, wrong, *args, callback=print)
    assert not loop.alive()


def test_errors_of_their_own(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    refused(ask, errno.EEXIST, fs.mkdir, tmp_path / "full")
    refused(ask, errno.ENOTEMPTY, fs.rmdir, tmp_path / "full")
    refused(ask, errno.EISDIR, fs.open, tmp_path / "full", os.O_WRONLY)
    refused(ask, errno.EEXIST, fs.symlink, "x", tmp_path / "full")
    refused(ask, errno.EINVAL, fs.readlink, tmp_path / "full")
    refused(ask, errno.ELOOP, fs.stat, tmp_path / "loop")
    refused(ask, errno.ELOOP, fs.realpath, tmp_path / "loop")
    refused(ask, errno.EEXIST, fs.open, tmp_path / "full" / "file", os.O_CREAT | os.O_EXCL | os.O_RDWR)


def test_a_callback_that_cannot_be_called_is_refused(loop: Loop, tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        fs.stat(loop, tmp_path, callback="not callable")  # type: ignore[call-overload]
    assert not loop.alive()


def test_a_closed_loop_does_nothing(loop: Loop, tmp_path: Path) -> None:
    loop.close()
    for callback in (None, print):
        with pytest.raises(RuntimeError):
            fs.mkdir(loop, tmp_path / "dir", callback=callback)  # type: ignore[call-overload]
    assert os.listdir(tmp_path) == []


def test_a_request_knows_its_path(loop: Loop, tmp_path: Path, fd: int) -> None:
    assert fs.stat(loop, tmp_path, lambda *args: None).path == str(tmp_path)
    assert fs.fstat(loop, fd, lambda *args: None).path is None
    loop.run()
