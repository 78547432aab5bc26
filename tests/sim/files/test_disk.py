"""A host's disk: files and names as programs see them, and what of both a power cut leaves."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from typing import Any

import pytest

from whorl import fs, sim


def ran(main: Any, **options: Any) -> Any:
    """Run a program in a world without faults, and return its value."""
    return sim.run(main, faults="none", **options).check()


async def _put(path: str, content: bytes, *, synced: bool = False, host: sim.Host) -> None:
    file = host.disk.open(path, "wb")
    file.write(content)
    file.flush()
    if synced:
        os.fsync(file.fileno())
    file.close()


def test_file_is_read_back_after_it_was_written() -> None:
    async def main(world: sim.World) -> Any:
        await _put("/srv/a", b"hello", host=world.main)
        async with fs.open("/srv/a", "rb") as file:
            return await file.read(), world.main.disk.read("/srv/a")

    assert ran(main) == (b"hello", b"hello")


def test_status_shows_size_type_and_the_virtual_time() -> None:
    async def main(world: sim.World) -> Any:
        await asyncio.sleep(5)
        await _put("/srv/a", b"hello", host=world.main)
        return await fs.stat("/srv/a")

    found = ran(main)
    assert (found.st_size, stat.S_ISREG(found.st_mode), found.st_nlink) == (5, True, 1)
    assert found.st_mtime_ns // 10**9 == 1_893_456_005


def test_names_can_be_linked_renamed_and_removed() -> None:
    async def main(world: sim.World) -> Any:
        disk = world.main.disk
        await fs.mkdir("/srv/d")
        async with fs.open("/srv/d/a", "w") as file:
            await file.write("text")
        await fs.link("/srv/d/a", "/srv/d/b")
        await fs.symlink("b", "/srv/d/c")
        await fs.rename("/srv/d/a", "/srv/e")
        with pytest.raises(OSError, match="not empty"):
            await fs.rmdir("/srv/d")
        names = sorted(await fs.listdir("/srv/d"))
        real = await fs.realpath("/srv/d/c")
        await fs.unlink("/srv/d/b")
        return names, real, disk.read("/srv/e"), disk.exists("/srv/d/c")

    assert ran(main) == (["b", "c"], "/srv/d/b", b"text", False)


@pytest.mark.parametrize(
    ("path", "mode", "code"),
    [
        ("/none/a", "w", errno.ENOENT),
        ("/srv/none", "r", errno.ENOENT),
        ("/srv", "w", errno.EISDIR),
        ("/srv/f/x", "r", errno.ENOTDIR),
        ("/", "r", errno.EISDIR),
        ("/srv/f", "x", errno.EEXIST),
        ("/srv/round", "r", errno.ELOOP),
    ],
)
def test_open_refuses_what_linux_refuses(path: str, mode: str, code: int) -> None:
    async def main(world: sim.World) -> Any:
        await _put("/srv/f", b"", host=world.main)
        await fs.symlink("/srv/round", "/srv/round")
        with pytest.raises(OSError, match=os.strerror(code)):
            world.main.disk.open(path, mode)

    ran(main)


def test_full_disk_refuses_the_rest_of_a_write() -> None:
    async def main(world: sim.World) -> Any:
        world.main.disk.capacity = 1000
        file = world.main.disk.open("/srv/a", "wb")
        written = os.write(file.fileno(), b"x" * 5000)
        with pytest.raises(OSError, match="No space left"):
            os.write(file.fileno(), b"y")
        file.close()
        return written, world.main.disk.read("/srv/a")

    assert ran(main) == (1000, b"x" * 1000)


def test_append_writes_at_the_end_whatever_the_position() -> None:
    async def main(world: sim.World) -> Any:
        world.main.disk.write("/srv/log", b"one ")
        file = world.main.disk.open("/srv/log", "ab")
        file.seek(0)
        file.write(b"two")
        file.close()
        return world.main.disk.read("/srv/log")

    assert ran(main) == b"one two"


def test_sendfile_sends_a_file_of_the_disk() -> None:
    async def main(world: sim.World) -> Any:
        world.main.disk.write("/srv/page", b"page " * 3000)

        async def serve(reader: Any, writer: Any) -> None:
            with world.main.disk.open("/srv/page", "rb") as file:
                await asyncio.get_running_loop().sendfile(writer.transport, file, fallback=False)
            writer.close()

        async with await asyncio.start_server(serve, "10.0.0.1", 80):
            reader, writer = await asyncio.open_connection("10.0.0.1", 80)
            content = await reader.read()
            writer.close()
        return content

    assert ran(main) == b"page " * 3000


def test_name_of_a_unix_socket_is_a_file_of_the_disk() -> None:
    async def main(world: sim.World) -> Any:
        async with await asyncio.start_unix_server(lambda reader, writer: None, "/run/app.sock"):
            is_socket = stat.S_ISSOCK((await fs.stat("/run/app.sock")).st_mode)
        with pytest.raises(FileNotFoundError):
            await asyncio.start_unix_server(lambda reader, writer: None, "/none/app.sock")
        return is_socket

    assert ran(main) is True


def test_real_file_may_be_read_but_not_written() -> None:
    async def main() -> Any:
        with open(__file__, encoding="utf-8") as file:
            first = file.readline()
        with pytest.raises(sim.RealFile, match=r"test_disk\.py"):
            open("/tmp/whorl-must-not-exist", "w", encoding="utf-8")
        with pytest.raises(sim.RealFile):
            os.mkdir("/tmp/whorl-must-not-exist")
        return first

    assert '"""' in ran(main)
    assert not os.path.exists("/tmp/whorl-must-not-exist")


# Power cuts.


def _after_a_crash(
    torn: float, *, synced: bool, seed: int = 0, names_synced: bool = True
) -> dict[str, bytes]:
    """Return the files of a host that has written 4 sectors over older ones, and crashed."""

    async def boot(host: sim.Host) -> None:
        if host.disk.exists("/srv/a"):
            return
        host.disk.write("/srv/a", b"o" * 2048)
        file = host.disk.open("/srv/a", "r+b")
        file.write(b"n" * 2048)
        file.flush()
        if synced:
            os.fsync(file.fileno())
        host.disk.open("/srv/b", "wb").close()
        if names_synced:
            directory = host.kernel.open_file("/srv", os.O_RDONLY, 0)
            os.fsync(directory)

    async def main(world: sim.World) -> Any:
        host = world.host("db", boot=boot)
        await asyncio.sleep(1)
        host.crash(torn=torn)
        return host.disk.files()

    return ran(main, seed=seed)  # type: ignore[no-any-return]


def test_crash_loses_what_was_not_synced() -> None:
    assert _after_a_crash(0.0, synced=False)["/srv/a"] == b"o" * 2048


def test_crash_keeps_what_was_synced() -> None:
    assert _after_a_crash(1.0, synced=True)["/srv/a"] == b"n" * 2048


def test_crash_tears_a_file_between_sectors() -> None:
    torn = {_after_a_crash(1.0, synced=False, seed=seed)["/srv/a"] for seed in range(30)}
    sectors = {content[at : at + 512] for content in torn for at in range(0, 2048, 512)}
    assert sectors == {b"o" * 512, b"n" * 512}
    assert len(torn) > 5


def test_crash_loses_a_name_whose_directory_was_not_synced() -> None:
    assert "/srv/b" not in _after_a_crash(0.0, synced=True, names_synced=False)
    assert "/srv/b" in _after_a_crash(0.0, synced=True, names_synced=True)


def test_rename_is_whole_after_a_crash() -> None:
    async def boot(host: sim.Host) -> None:
        if not host.disk.exists("/srv/new"):
            host.disk.write("/srv/current", b"old")
            host.disk.write("/srv/new", b"new")
            await fs.rename("/srv/new", "/srv/current")

    async def main(world: sim.World) -> Any:
        host = world.host("db", boot=boot)
        await asyncio.sleep(1)
        host.crash(torn=0.5)
        return tuple(host.disk.files().items())

    found = {sim.run(main, seed=seed, faults="none").check() for seed in range(20)}
    assert found == {(("/srv/current", b"new"),), (("/srv/current", b"old"), ("/srv/new", b"new"))}


def test_failed_sync_is_not_made_good_by_the_next_one() -> None:
    async def boot(host: sim.Host) -> None:
        if host.disk.exists("/srv/log"):
            return
        host.disk.write("/srv/log", b"")
        file = host.disk.open("/srv/log", "wb")
        file.write(b"entry")
        file.flush()
        opened: Any = host.kernel.table.files[file.fileno()]
        opened.inode.fail_sync()
        os.fsync(file.fileno())

    async def main(world: sim.World) -> Any:
        host = world.host("db", boot=boot)
        await asyncio.sleep(1)
        host.crash(torn=1.0)
        return host.disk.read("/srv/log")

    assert ran(main) == bytes(5)


@pytest.mark.parametrize(("fault", "code"), [("eio", errno.EIO), ("enospc", errno.ENOSPC)])
def test_disk_fails_as_often_as_the_faults_say(fault: str, code: int) -> None:
    async def main() -> Any:
        try:
            async with fs.open("/srv/a", "wb") as file:
                await file.write(b"x")
        except OSError as error:
            return error.errno
        return 0

    rates = sim.Faults(**{fault: 0.5})
    assert {sim.run(main, seed=seed, faults=rates).check() for seed in range(20)} == {0, code}


def test_same_seed_gives_the_same_calls_of_files() -> None:
    async def main() -> None:
        for number in range(3):
            async with fs.open(f"/srv/{number}", "w") as file:
                await file.write("x")

    digests = [sim.run(main, seed=seed, faults="light").digest for seed in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]
