"""Records that arrive in any pieces, and their decrypted data."""

from __future__ import annotations

import contextlib
import ssl
from types import SimpleNamespace
from typing import Any

import pytest

import whorl
from tests.aio.sockets_for_tests import Recorder, noise, turns
from tests.aio.tls_contexts import manual_connection
from whorl.aio.tls.records import RecordReader, RecordScanner

RECORDS = [b"\x16\x03\x01\x00\x02ab", b"\x17\x03\x03\x00\x00", b"\x17\x03\x03\x01\x00" + bytes(256)]
STREAM = bytearray(b"".join(RECORDS))
ENDS = [7, 12, 273]


@pytest.fixture
def protocol() -> Recorder:
    return Recorder()


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_ends_of_records_are_found_wherever_the_pieces_end(cut: int) -> None:
    walk = RecordScanner()
    assert walk.whole(STREAM, 0, cut, 1000) == max([0, *(end for end in ENDS if end <= cut)])
    assert walk.is_between() == (cut in (0, *ENDS))
    assert walk.whole(STREAM, cut, len(STREAM), 1000) == len(STREAM)
    assert walk.is_between()
    assert walk.is_known


def test_record_scanner_counts_no_more_records_than_are_wanted() -> None:
    walk = RecordScanner()
    assert walk.whole(STREAM, 0, len(STREAM), 8) == 12
    assert walk.whole(STREAM, 12, len(STREAM), 8) == len(STREAM)


@pytest.mark.parametrize("header", [b"\x80.\x01\x03\x01", b"\x17\x02\x00\x00\x10", b"\x16\x03\x01H\x01"])
def test_record_scanner_stops_at_an_invalid_header(header: bytes) -> None:
    walk = RecordScanner()
    walk.scan(bytearray(header + bytes(100)), 105)
    assert not walk.is_known


async def in_two_pieces(peer: Any, ciphertext: bytes, cut: int, seen_first: Any) -> None:
    for piece in (ciphertext[:cut], ciphertext[cut:]):
        peer.outgoing.write(piece)
        await peer.flush()
        if piece is not ciphertext[cut:]:
            await seen_first()


@pytest.mark.parametrize("missing", [1, 7000, 16_405 + 3, 16_406 + 10_000])
async def test_a_part_of_a_record_waits_for_its_rest(
    loop: whorl.EventLoop, protocol: Recorder, missing: int
) -> None:
    data = noise(16_384 * 6)
    async with manual_connection(loop, protocol) as (_, peer):
        peer.tls.write(data)
        ciphertext = peer.outgoing.read()
        whole = (len(ciphertext) - missing) // 16_406 * 16_384

        async def first_is_seen() -> None:
            assert await protocol.until_received(whole) == data[:whole]

        await in_two_pieces(peer, ciphertext, len(ciphertext) - missing, first_is_seen)
        assert await protocol.until_received(len(data)) == data
        await peer.send(b"small")
        assert await protocol.until_received(len(data) + 5) == data + b"small"


async def test_a_part_of_a_record_does_not_keep_a_connection_from_reading(
    loop: whorl.EventLoop, protocol: Recorder
) -> None:
    data = noise(16_384 * 3)
    async with manual_connection(loop, protocol) as (transport, peer):
        peer.tls.write(data)

        async def first_is_seen() -> None:
            await protocol.until_received(16_384 * 2)
            transport.set_read_buffer_limits(high=1)
            assert transport._ssl_protocol._transport.is_reading()
            transport.pause_reading()
            await turns(3)
            transport.resume_reading()

        await in_two_pieces(peer, peer.outgoing.read(), 16_406 * 2 + 9000, first_is_seen)
        assert await protocol.until_received(len(data)) == data


async def test_many_small_records_arrive_as_one(loop: whorl.EventLoop, protocol: Recorder) -> None:
    lines = [noise(100 + number) for number in range(500)]
    async with manual_connection(loop, protocol) as (_, peer):
        for line in lines:
            peer.tls.write(line)
        await peer.flush()
        assert await protocol.until_received(sum(map(len, lines))) == b"".join(lines)


async def test_the_end_behind_many_records_comes_after_them(
    loop: whorl.EventLoop, protocol: Recorder
) -> None:
    data = noise(100_000)
    async with manual_connection(loop, protocol) as (_, peer):
        peer.tls.write(data)
        await peer.say_close_notify()
        assert await protocol.until_received(len(data)) == data
        while "eof_received" not in protocol.calls:
            await turns(1)


async def test_a_broken_record_costs_none_before_it(loop: whorl.EventLoop, protocol: Recorder) -> None:
    data = noise(16_384 * 4)
    async with manual_connection(loop, protocol) as (_, peer):
        peer.tls.write(data)
        ciphertext = bytearray(peer.outgoing.read())
        ciphertext[-100] ^= 1
        peer.outgoing.write(ciphertext)
        await peer.flush()
        assert await protocol.until_received(16_384 * 3) == data[: 16_384 * 3]
        assert isinstance(await protocol.until_lost(), ssl.SSLError)


class Keeping:
    """A reader of records that keeps its buffers."""

    def __init__(self, records: Any) -> None:
        self.records = records
        self.kept: list[memoryview] = []

    def read(self, size: int, buffer: Any) -> int:
        with memoryview(buffer) as view:
            self.kept.append(view[:])
        count: int = self.records.read(size, buffer)
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self.records, name)


async def test_a_program_that_reads_the_records_itself_may_keep_its_buffers(
    loop: whorl.EventLoop, protocol: Recorder
) -> None:
    data = noise(100_000)
    async with manual_connection(loop, protocol) as (transport, peer):
        layer = transport._ssl_protocol
        keeping = layer._records = Keeping(layer._records)
        await peer.send(data)
        assert await protocol.until_received(len(data)) == data
        assert all(len(bytes(buffer)) == len(buffer) for buffer in keeping.kept)
        assert keeping.kept


@pytest.mark.skipif(whorl.compiled, reason="compiled, only the data path can call it")
def test_a_connection_is_not_read_from_within_a_read_of_it() -> None:
    refusals = []
    reader = RecordReader(ssl.MemoryBIO(), memoryview(STREAM))

    def read(size: int, buffer: Any) -> int:
        reader._incoming.read()
        with contextlib.suppress(ValueError):
            try:
                reader.decrypt(records, len(STREAM))
            except RuntimeError as error:
                refusals.append(error)
        buffer[:3] = b"abc"
        return 3

    records = SimpleNamespace(read=read)
    assert reader.decrypt(records, len(STREAM)) == b"abc"
    assert reader.error is None
    assert len(refusals) == 1
    assert reader.decrypt(records, 0) == b""


async def test_record_scanner_that_loses_track_loses_no_data(
    loop: whorl.EventLoop, protocol: Recorder
) -> None:
    data = noise(100_000)
    async with manual_connection(loop, protocol) as (transport, peer):
        for track_is_lost in (False, True):
            if track_is_lost:
                transport._ssl_protocol._record_reader.stop()
            await peer.send(data)
        assert await protocol.until_received(2 * len(data)) == data + data
