"""Files that somebody names for an output: each is whole or as it was, and only a file is replaced."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.core.loop_fakes import in_child
from whorl.inspector.recordings.output import written


def put(path: Path | str, data: bytes = b"new") -> None:
    with written(str(path)) as file:
        file.write(data)


def fail(path: Path) -> None:
    """Write a part, and fail as a full disk does."""
    with pytest.raises(OSError, match="No space") as failure:
        put_a_part(path)
    assert failure.value.filename == str(path)


def put_a_part(path: Path) -> None:
    with written(str(path)) as file:
        file.write(b"a part")
        file.flush()
        raise OSError(28, "No space left on device")


def test_file_is_there_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with written(str(path)) as file:
        file.write(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["out"]


def test_earlier_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old and longer")
    path.chmod(0o640)
    put(path)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_earlier_file_stays_if_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    fail(path)
    assert path.read_bytes() == b"old"
    fail(tmp_path / "another")
    assert os.listdir(tmp_path) == ["out"]


def in_folder_of_others(folder: Path, act: Callable[[], object]) -> int:
    """Act in a child that may write the file `out` of a folder, which it is in, and make no file there."""
    (folder / "out").write_bytes(b"old and longer")
    (folder / "out").chmod(0o666)
    folder.chmod(0o555)

    def act_there() -> None:
        os.chdir(folder)
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
        act()

    try:
        return in_child(act_there)
    finally:
        folder.chmod(0o755)


def test_file_in_a_folder_of_others_is_written_to_when_all_is_made(tmp_path: Path) -> None:
    def act() -> None:
        with written("out") as file:
            file.write(b"new")
            file.flush()
            assert Path("out").read_bytes() == b"old and longer"

    assert in_folder_of_others(tmp_path, act) == 0
    assert (tmp_path / "out").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["out"]


def test_file_in_a_folder_of_others_stays_if_writing_fails(tmp_path: Path) -> None:
    def act() -> None:
        with pytest.raises(OSError, match="No space"):
            put_a_part(Path("out"))
        with pytest.raises(PermissionError, match="'another'"):
            put("another")

    assert in_folder_of_others(tmp_path, act) == 0
    assert (tmp_path / "out").read_bytes() == b"old and longer"


def mounted(source: Path, target: Path) -> bool:
    """Mount a file on another one, for this process alone; return whether the system allows it."""
    clone_newns, ms_bind, ms_rec, ms_private = 0x20000, 0x1000, 0x4000, 1 << 18
    library = ctypes.CDLL(None)
    return bool(
        library.unshare(clone_newns) == 0
        and library.mount(b"none", b"/", None, ms_rec | ms_private, None) == 0
        and library.mount(bytes(source), bytes(target), None, ms_bind, None) == 0
    )


def test_file_that_is_a_mount_is_written_to_when_all_is_made(tmp_path: Path) -> None:
    path, other = tmp_path / "out", tmp_path / "other"
    path.write_bytes(b"below")
    other.write_bytes(b"old and longer")

    def act() -> None:
        if mounted(other, path):
            fail(path)
            assert path.read_bytes() == b"old and longer"
            put(path)
            assert path.read_bytes() == b"new"

    assert in_child(act) == 0
    assert path.read_bytes() == b"below"
    assert sorted(os.listdir(tmp_path)) == ["other", "out"]


def test_file_that_is_busy_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").write_bytes(b"old and longer")

    def refuse(new: str, path: str) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy", new)

    monkeypatch.setattr(os, "replace", refuse)
    put(tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["out"]


def test_fifo_is_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("fifo")
    for name in ("fifo", "link"):
        thread = threading.Thread(target=put, args=(tmp_path / name,))
        thread.start()
        assert (tmp_path / "fifo").read_bytes() == b"new"
        thread.join()
    assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode)
    assert (tmp_path / "link").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["fifo", "link"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_device_stays_a_device(tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        device.read_bytes()
    except PermissionError:
        pytest.skip("devices of this folder cannot be opened")
    put(device)
    assert stat.S_ISCHR(device.stat().st_mode)
    assert os.listdir(tmp_path) == ["null"]


def test_link_leads_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "there").symlink_to("folder/out")
    (tmp_path / "link").symlink_to("there")
    for data in (b"first", b"second"):
        put(tmp_path / "link", data)
        assert (tmp_path / "folder" / "out").read_bytes() == data
    fail(tmp_path / "link")
    assert (tmp_path / "folder" / "out").read_bytes() == b"second"
    assert (tmp_path / "there").is_symlink()
    assert os.listdir(tmp_path / "folder") == ["out"]


def test_open_file_of_this_process_is_written_to(tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb") as file:
        put(f"/proc/self/fd/{file.fileno()}")
        (tmp_path / "link").symlink_to(f"/proc/self/fd/{file.fileno()}")
        assert os.fstat(file.fileno()).st_size == 3
        put(tmp_path / "link", b"longer")
        assert os.fstat(file.fileno()).st_size == 6


def test_pipe_of_this_process_is_written_to(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    (tmp_path / "link").symlink_to(f"/proc/self/fd/{writing}")
    put(tmp_path / "link")
    assert os.read(reading, 10) == b"new"
    os.close(reading)
    os.close(writing)


def test_name_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").mkdir()
    for name in ("no/such/folder", "loop", "folder", "out/x"):
        with pytest.raises(OSError, match=re.escape(name)) as failure:
            put(tmp_path / name)
        assert failure.value.filename == str(tmp_path / name)
