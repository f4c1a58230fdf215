"""The five codecs of a record batch, with a cap on the decompressed size.

A batch compresses everything after its header as one stream:

* gzip: RFC 1952, as Java's ``GZIPOutputStream`` writes it.
* snappy: Xerial's framing (as ``snappy-java``), 16 bytes ``82 "SNAPPY" 00``, version i32,
  compatible i32, then blocks of i32 length and raw snappy; bare raw snappy (librdkafka) is read
  as well.
* lz4: the LZ4 frame format with independent blocks, the only kind that Java reads.
* zstd: RFC 8878.

Decompression never trusts a declared size: output goes into buffers that grow up to the caller's
cap, so a decompression bomb takes at most the cap. ``cramjam`` is loaded at the first call, because
a broker whose topics leave compression to producers never needs it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from typing import Final, Protocol, cast

from millstream.model.errors import CorruptLogError
from millstream.records.crc32c import Buffer


class Codec(IntEnum):
    """Bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @staticmethod
    def named(name: str) -> Codec:
        """Return the codec that clients and topics call ``name``; ValueError for others.

        ``none`` and ``uncompressed`` are the same; ``producer`` is not a codec.
        """
        if name == "uncompressed":
            return Codec.NONE
        try:
            return Codec[name.upper()]
        except KeyError:
            raise ValueError(f"unknown codec {name!r}") from None


class OverCapError(CorruptLogError):
    """A stream decompresses to, or declares, more bytes than the caller's cap."""


DEFAULT_MAX_BYTES: Final = 128 * 1024 * 1024
"""Cap on what one batch may decompress to unless a caller says otherwise."""

MAX_ZSTD_WINDOW_BYTES: Final = 128 * 1024 * 1024
"""Largest window that a zstd frame may ask for: what level 22 declares and zstd's own default
limit. Memory is touched only as output is produced, which the byte cap bounds.
"""

_GZIP_TIME: Final = slice(4, 8)
"""MTIME in a gzip header (RFC 1952)."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")
_GZIP_SIZE = struct.Struct("<I")
_ZSTD_MAGIC: Final = 0xFD2FB528
_FIRST_GUESS_BYTES: Final = 64 * 1024
_DEFAULT_GZIP_LEVEL: Final = 6
_DEFAULT_LZ4_LEVEL: Final = 9
_DEFAULT_ZSTD_LEVEL: Final = 3


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """Return ``data`` as one stream of ``codec``.

    ``level`` is that of the topic settings ``compression.{gzip,lz4,zstd}.level`` in Kafka:
    -1 is gzip's own default, and lz4's 9, its default, selects the fast compressor.
    """
    if codec == Codec.NONE:
        return data
    return _COMPRESSORS[Codec(codec)](data, level)


def decompress(codec: int, data: Buffer, max_bytes: int = DEFAULT_MAX_BYTES) -> Buffer:
    """Decompress the stream ``data`` to at most ``max_bytes``.

    Raises CorruptLogError on a stream that is damaged or names a codec that does not exist,
    OverCapError on one that holds more than ``max_bytes``.
    """
    if codec == Codec.NONE:
        return data
    decompressor = _DECOMPRESSORS.get(codec)
    if decompressor is None:
        raise CorruptLogError(f"compression codec {codec} does not exist")
    return decompressor(data, max_bytes)


class _DecompressInto(Protocol):
    def __call__(self, data: Buffer, output: bytearray, /) -> int: ...


class _Module(Protocol):
    """The functions used from ``cramjam.gzip``, ``.lz4`` and ``.zstd``."""

    decompress_into: _DecompressInto

    def compress(self, data: Buffer, *, level: int) -> Buffer: ...


class _Lz4Compressor(Protocol):
    def compress(self, data: bytes, /) -> int: ...

    def finish(self) -> Buffer: ...


class _Lz4Module(_Module, Protocol):
    def Compressor(  # noqa: N802  (cramjam's name)
        self, *, level: int, content_checksum: bool, block_linked: bool
    ) -> _Lz4Compressor: ...


class _SnappyModule(Protocol):
    decompress_raw_into: _DecompressInto

    def compress_raw(self, data: Buffer) -> Buffer: ...

    def decompress_raw_len(self, data: Buffer) -> int: ...


class _Cramjam(Protocol):
    """The modules used from the package."""

    gzip: _Module
    snappy: _SnappyModule
    lz4: _Lz4Module
    zstd: _Module
    DecompressionError: type[Exception]


@cache
def _cramjam() -> _Cramjam:
    import cramjam

    return cast(_Cramjam, cramjam)


def _compress_gzip(data: Buffer, level: int | None) -> Buffer:
    chosen = _DEFAULT_GZIP_LEVEL if level is None or level < 0 else level
    compressed = bytearray(_cramjam().gzip.compress(data, level=chosen))
    # With the current time the same records would give different bytes; Java writes 0 too.
    compressed[_GZIP_TIME] = bytes(4)
    return compressed


def _compress_snappy(data: Buffer, _level: int | None) -> Buffer:
    compress_raw = _cramjam().snappy.compress_raw
    view = memoryview(data)
    parts: list[Buffer] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_BLOCK_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _compress_lz4(data: Buffer, level: int | None) -> Buffer:
    # Kafka's default level, 9, means lz4's fast compressor; every other one the slow compressor.
    chosen = 0 if level is None or level == _DEFAULT_LZ4_LEVEL else level
    compressor = _cramjam().lz4.Compressor(level=chosen, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _compress_zstd(data: Buffer, level: int | None) -> Buffer:
    chosen = _DEFAULT_ZSTD_LEVEL if level is None else level
    return bytes(_cramjam().zstd.compress(data, level=chosen))


def _decompress_gzip(data: Buffer, max_bytes: int) -> Buffer:
    # The last four bytes are the size modulo 2^32 in a stream of one member: a first guess only.
    guess = _GZIP_SIZE.unpack_from(data, len(data) - 4)[0] if len(data) >= 18 else 0
    return _grow(_cramjam().gzip.decompress_into, data, guess, max_bytes)


def _decompress_lz4(data: Buffer, max_bytes: int) -> Buffer:
    return _grow(_cramjam().lz4.decompress_into, data, 0, max_bytes)


def _decompress_zstd(data: Buffer, max_bytes: int) -> Buffer:
    content_size = _check_zstd_frame(data)
    return _grow(_cramjam().zstd.decompress_into, data, content_size, max_bytes)


def _decompress_snappy(data: Buffer, max_bytes: int) -> Buffer:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, max_bytes)
    parts: list[Buffer] = []
    position = len(_XERIAL_HEADER)
    if len(view) < position:
        raise CorruptLogError("a snappy stream ends inside its header")
    while position < len(view):
        if len(view) - position < _BLOCK_LENGTH.size:
            raise CorruptLogError("a snappy stream ends inside a block length")
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += _BLOCK_LENGTH.size
        if length < 0 or length > len(view) - position:
            raise CorruptLogError(f"a snappy block of {length} bytes does not fit its stream")
        part = _decompress_snappy_block(view[position : position + length], max_bytes)
        parts.append(part)
        max_bytes -= len(part)
        position += length
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_snappy_block(block: memoryview, max_bytes: int) -> Buffer:
    cramjam = _cramjam()
    if not len(block):
        raise CorruptLogError("an empty snappy block")
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > max_bytes:
            raise OverCapError(f"a snappy block declares {size} bytes, over the cap")
        # 64 times is more than snappy's format can reach: a larger declared size is invalid, which
        # is detected before allocating.
        if size > 64 * len(block):
            raise CorruptLogError(f"a snappy block of {len(block)} bytes declares {size} bytes")
        output = bytearray(size)
        written = cramjam.snappy.decompress_raw_into(block, output)
    except (cramjam.DecompressionError, ValueError, OverflowError) as error:
        raise CorruptLogError(f"a snappy block cannot be read: {error}") from error
    if written != size:
        raise CorruptLogError(f"a snappy block holds {written} bytes and declares {size}")
    return output


def _grow(into: _DecompressInto, data: Buffer, guess: int, max_bytes: int) -> Buffer:
    """Decompress into a buffer of a guessed size, four times as large each time it is too small."""
    capacity = min(max(guess, 4 * len(data), _FIRST_GUESS_BYTES), max_bytes)
    if guess > len(data) * 1024:
        capacity = min(_FIRST_GUESS_BYTES, max_bytes)
    while True:
        output = bytearray(capacity)
        try:
            written = into(data, output)
        except _cramjam().DecompressionError as error:
            if "whole buffer" not in str(error):
                raise CorruptLogError(f"a compressed batch cannot be read: {error}") from error
            if capacity >= max_bytes:
                raise OverCapError(
                    f"a compressed batch of {len(data)} bytes holds more than {max_bytes} bytes"
                ) from None
            capacity = min(capacity * 4, max_bytes)
            continue
        del output[written:]
        return output


def _check_zstd_frame(data: Buffer) -> int:
    """Check magic and window of the first frame; return its content size, 0 when not given.

    Frame header (RFC 8878, 3.1.1.1): magic u32 LE, descriptor u8 (bits 6-7 size of the content
    size field, bit 5 single segment, bits 0-1 size of the dictionary id), window u8 unless single
    segment, dictionary id, content size.
    """
    view = memoryview(data)
    if len(view) < 6 or int.from_bytes(view[:4], "little") != _ZSTD_MAGIC:
        raise CorruptLogError("a zstd stream does not start with a frame")
    descriptor = view[4]
    single_segment = bool(descriptor & 0x20)
    position = 5
    window = 0
    if not single_segment:
        exponent, mantissa = view[position] >> 3, view[position] & 7
        base = 1 << (10 + exponent)
        window = base + (base >> 3) * mantissa
        position += 1
    position += (0, 1, 2, 4)[descriptor & 3]
    size_length = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    content_size = int.from_bytes(view[position : position + size_length], "little")
    if size_length == 2:
        content_size += 256
    if max(window, content_size if single_segment else 0) > MAX_ZSTD_WINDOW_BYTES:
        raise CorruptLogError("a zstd frame asks for a window over the cap")
    return content_size


_COMPRESSORS: Final[dict[int, Callable[[Buffer, int | None], Buffer]]] = {
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}
_DECOMPRESSORS: Final[dict[int, Callable[[Buffer, int], Buffer]]] = {
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
