from __future__ import annotations

import gzip
import random
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import lz4.frame
import pytest
import snappy
import zstandard

from millstream.model.errors import CorruptLogError
from millstream.records.compression import Codec, compress, decompress

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
MIB = 1 << 20


def text(size: int) -> bytes:
    rng = random.Random(size)
    words = b"".join(b"GET /page/%d HTTP/1.1 " % rng.randrange(1000) for _ in range(size // 20))
    return (words + bytes(size))[:size]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("size", [0, 1, 100, 32 * 1024, 32 * 1024 + 1, 300_000])
def test_round_trip(codec: Codec, size: int) -> None:
    for data in (text(size), random.Random(1).randbytes(size), bytes(size)):
        assert bytes(decompress(codec, compress(codec, data))) == data
        assert bytes(decompress(codec, compress(codec, memoryview(data)))) == data


@pytest.mark.parametrize(
    ("codec", "read"),
    [
        (Codec.GZIP, gzip.decompress),
        (Codec.LZ4, lz4.frame.decompress),
        (Codec.ZSTD, lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data)),
    ],
)
def test_the_codecs_own_packages_read_ours(codec: Codec, read: Callable[[bytes], bytes]) -> None:
    for data in (b"x", text(200_000)):
        assert read(bytes(compress(codec, data))) == data


def xerial_blocks(stream: bytes) -> list[bytes]:
    assert stream[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    blocks, position = [], 16
    while position < len(stream):
        (length,) = struct.unpack_from(">i", stream, position)
        blocks.append(stream[position + 4 : position + 4 + length])
        position += 4 + length
    return blocks


def test_snappy_is_written_in_blocks_of_32_kib_as_javas() -> None:
    data = text(70_000)
    blocks = xerial_blocks(bytes(compress(Codec.SNAPPY, data)))
    plain = [snappy.decompress(block) for block in blocks]
    assert [len(block) for block in plain] == [32768, 32768, 4464]
    assert b"".join(plain) == data


def test_lz4_blocks_are_independent_as_java_demands() -> None:
    stream = bytes(compress(Codec.LZ4, text(200_000)))
    flags, block_descriptor = stream[4], stream[5]
    assert flags & 0xF0 == 0x70 & 0xF0  # version 01, independent blocks, no block checksums
    assert block_descriptor >> 4 == 4  # 64 KiB


def zstd_stream(data: bytes) -> bytes:
    chunked = zstandard.ZstdCompressor(level=7).compressobj()
    return chunked.compress(data) + chunked.flush()


FOREIGN: dict[str, tuple[Codec, Callable[[bytes], bytes]]] = {
    "gzip -1": (Codec.GZIP, lambda data: gzip.compress(data, 1)),
    "two members": (Codec.GZIP, lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:])),
    "raw snappy": (Codec.SNAPPY, snappy.compress),
    "linked lz4": (Codec.LZ4, lambda data: lz4.frame.compress(data, block_linked=True)),
    "lz4, 4 MiB": (Codec.LZ4, lambda data: lz4.frame.compress(data, 0, 7, content_checksum=True)),
    "lz4 without size": (Codec.LZ4, lambda data: lz4.frame.compress(data, store_size=False)),
    "zstd": (Codec.ZSTD, zstandard.compress),
    "zstd without size": (
        Codec.ZSTD,
        zstandard.ZstdCompressor(write_content_size=False).compress,
    ),
    "zstd stream": (Codec.ZSTD, zstd_stream),
    "zstd -5": (Codec.ZSTD, zstandard.ZstdCompressor(level=-5).compress),
}


@pytest.mark.parametrize("name", sorted(FOREIGN))
def test_streams_of_other_packages_are_read(name: str) -> None:
    codec, write = FOREIGN[name]
    for data in (b"0123456789", text(300_000)):
        assert bytes(decompress(codec, write(data))) == data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_the_cap_is_exact(codec: Codec) -> None:
    data = text(100_000)
    stream = compress(codec, data)
    assert len(decompress(codec, stream, len(data))) == len(data)
    with pytest.raises(CorruptLogError):
        decompress(codec, stream, len(data) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_costs_no_more_than_the_cap(codec: Codec) -> None:
    bomb = bytes(compress(codec, bytes(64 * MIB)))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptLogError):
            decompress(codec, bomb, MIB)
        assert tracemalloc.get_traced_memory()[1] < 5 * MIB + len(bomb)
    finally:
        tracemalloc.stop()


def test_a_declared_size_allocates_nothing() -> None:
    lies = [
        (Codec.SNAPPY, b"\x80\x80\x80\x30" + b"\x00" * 20),
        (Codec.GZIP, gzip.compress(b"small")[:-4] + b"\xff\xff\xff\x7f"),
        (Codec.ZSTD, bytes.fromhex("28b52ffda0000000") + b"\x07\x01\x00\x00"),
    ]
    for codec, lie in lies:
        tracemalloc.start()
        try:
            with suppress(CorruptLogError):
                decompress(codec, lie)
            assert tracemalloc.get_traced_memory()[1] < MIB
        finally:
            tracemalloc.stop()


def test_a_zstd_window_over_the_cap_is_refused() -> None:
    frame = bytearray(zstandard.ZstdCompressor(write_content_size=False).compress(text(300_000)))
    assert frame[4] & 0x20 == 0  # not a single segment: byte 5 is the window
    assert decompress(Codec.ZSTD, frame)
    frame[5] = 18 << 3  # 2^28 bytes
    with pytest.raises(CorruptLogError, match="window"):
        decompress(Codec.ZSTD, frame)


@pytest.mark.parametrize(
    "stream",
    [
        b"\x82SNAPPY\x00",
        b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, 5),
        b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, -1),
        b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, 0),
        b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + b"\x00",
        b"",
    ],
)
def test_broken_snappy_framing(stream: bytes) -> None:
    with pytest.raises(CorruptLogError):
        decompress(Codec.SNAPPY, stream)


def test_codecs_that_do_not_exist() -> None:
    for codec in (5, 6, 7):
        with pytest.raises(CorruptLogError):
            decompress(codec, b"x")


def test_levels_mean_what_they_mean_in_kafka() -> None:
    data = text(200_000)
    sizes = {level: len(compress(Codec.GZIP, data, level)) for level in (1, 9)}
    assert sizes[9] < sizes[1]
    assert len(compress(Codec.GZIP, data, -1)) == len(compress(Codec.GZIP, data))
    assert compress(Codec.LZ4, data, 9) == compress(Codec.LZ4, data)
    assert len(compress(Codec.LZ4, data, 12)) < len(compress(Codec.LZ4, data, 9))
    assert len(compress(Codec.ZSTD, data, 19)) < len(compress(Codec.ZSTD, data, -5))


def test_names() -> None:
    assert [Codec.named(codec.name.lower()) for codec in Codec] == list(Codec)
    assert Codec.named("uncompressed") is Codec.NONE
    with pytest.raises(ValueError, match="producer"):
        Codec.named("producer")


def test_gzip_holds_no_time_of_day() -> None:
    """The same records are the same bytes tomorrow."""
    assert bytes(compress(Codec.GZIP, b"abc" * 100))[4:8] == bytes(4)
