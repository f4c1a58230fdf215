"""The codec in C gives what the codec in Python gives, or leaves it to that one: every class in
every version, bytes that are cut and changed, values of the wrong kind.

``python native/sanitize.py`` runs this with a library that watches every read and write, and with
more rounds.
"""

from __future__ import annotations

import gc
import os
import struct
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import IntEnum
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from tests.property.hostile_batches import MOST, NOW_MS, HostileWriter, some_limits, spoilt_batch
from tests.property.random_messages import every_version, random_struct
from tests.property.test_protocol_round_trip import damaged

from millstream.model.topic import TopicPartition
from millstream.protocol import codec, compile, headers
from millstream.protocol.api import APIS
from millstream.protocol.coders import _encode_in_python
from millstream.protocol.headers import (
    RequestHeader,
    decode_request_header,
    header_decoder,
    response_header_is_flexible,
)
from millstream.protocol.message import Message, Request, Response
from millstream.protocol.native_codec import Kind, NativeCodec, native_codec
from millstream.protocol.outgoing import MERGE_BELOW_BYTES, Outgoing
from millstream.protocol.schema import Struct
from millstream.records import kernel
from millstream.records.batch import HEADER_SIZE
from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.compression import Codec
from millstream.records.crc32c import checksum
from millstream.records.find_kernel import batch_finder
from millstream.records.kernel import Library
from millstream.records.kernel import library as installed_kernel
from millstream.records.limits import ProduceLimits, UncheckedBatch
from millstream.records.produce_kernel import BATCH_FIELDS, receiver
from millstream.records.record import Record
from millstream.records.record_checks import prepare
from millstream.records.validation import validate_produced
from millstream.storage.directory import PartitionDirectory, SegmentLocation
from millstream.storage.environment import LogEnvironment
from millstream.storage.file_records import BatchPosition, FileRecords

ROUNDS: Final = max(4, int(os.environ.get("MILLSTREAM_FUZZ_ROUNDS", "0")) // 20)
"""How many messages of each class in each version."""

NOT_ME: Final = object()
CASES: Final = every_version()


@pytest.fixture(scope="module")
def native() -> NativeCodec:
    """The codec of the installed library, or of the one that the environment names."""
    path = os.environ.get("MILLSTREAM_FUZZ_KERNEL")
    found = NativeCodec(Path(path)) if path else native_codec()
    if found is None:
        pytest.skip("needs the codec in C: python native/build.py")
    return found


class Functions:
    """All functions in C of one class in one version; they answer NOT_ME for their fallback."""

    def __init__(self, native: NativeCodec, cls: type[Message], version: int) -> None:
        self.cls, self.version = cls, version
        make = partial(native.function, cls=cls, version=version, fallback=lambda *_: NOT_ME)
        self.decode: Callable[..., Any] = make(Kind.DECODE)
        self.decode_request: Callable[..., Any] = make(Kind.DECODE_REQUEST, max_elements=1000)
        self.encode: Callable[..., Any] = make(Kind.ENCODE)
        flexible = False
        if issubclass(cls, Request):
            flexible = cls.is_flexible(version)
        elif issubclass(cls, Response):
            flexible = response_header_is_flexible(cls.API_KEY, version)
        self.decode_response: Callable[..., Any] = make(
            Kind.DECODE_RESPONSE, max_elements=1000, flexible_header=flexible
        )
        self.encode_request: Callable[..., Any] = make(
            Kind.ENCODE_REQUEST, flexible_header=flexible
        )
        self.encode_response: Callable[..., Any] = make(
            Kind.ENCODE_RESPONSE, flexible_header=flexible
        )


@pytest.fixture(scope="module")
def functions(native: NativeCodec) -> list[Functions]:
    return [Functions(native, cls, version) for cls, version in CASES]


def plain(value: object) -> object:
    """Return a value that can be compared, and that tells every kind of object from the others."""
    match value:
        case Struct():
            names = [field.name for field in value.FIELDS]
            return type(value), [plain(getattr(value, name)) for name in names]
        case Outgoing():
            return Outgoing, value.size, value.join()
        case memoryview():
            return memoryview, value.tobytes(), value.readonly, id(value.obj)
        case list() | tuple():
            return type(value), [plain(each) for each in value]
        case RequestHeader():
            return RequestHeader, [plain(getattr(value, name)) for name in RequestHeader.__slots__]
        case float():
            return float, struct.pack("d", value)
        case _:
            return type(value), value


def outcome(work: Callable[..., object], *arguments: object) -> object:
    try:
        return plain(work(*arguments))
    except Exception as error:
        return type(error), str(error)


def joined(encode: Callable[..., list[Any]], *arguments: object) -> bytes:
    return b"".join(encode(*arguments))


def bytes_of(pieces: list[Any]) -> bytes:
    return b"".join(pieces)


@pytest.mark.slow
def test_every_message_is_read_and_written_in_c(functions: list[Functions]) -> None:
    for each in functions:
        for seed in range(ROUNDS):
            message = random_struct(each.cls, each.version, Random(seed))
            expected = bytes_of(_encode_in_python(each.version, message))
            assert bytes_of(each.encode(message)) == expected, (each.cls, each.version, seed)
            body = memoryview(expected)
            in_python = compile.decode(each.cls, each.version, body)
            assert plain(each.decode(body, 0, 1 << 24)) == plain(in_python)
            read = each.decode_request(body, 0)
            assert plain(read) == plain(in_python[0]), (each.cls, each.version, seed)
            assert bytes_of(each.encode(read)) == expected


def test_framed_messages_are_read_and_written_in_c(functions: list[Functions]) -> None:
    random = Random(0)
    for each in functions:
        cls, version = each.cls, each.version
        message = random_struct(cls, version, random)
        number = random.choice((0, -1, 2**31 - 1, -(2**31)))
        if isinstance(message, Request):
            client_id = random.choice((None, "", "a client", "日志", "x" * 2000))
            python = codec._encode_request_in_python(version, message, number, client_id)
            written = each.encode_request(message, number, client_id)
            assert plain(written) == plain(python)
        elif isinstance(message, Response):
            key = message.API_KEY
            head = number.to_bytes(4, "big", signed=True)
            head += bytes(response_header_is_flexible(key, version))
            written = each.encode_response(number, message)
            body = bytes_of(_encode_in_python(version, message))
            frame = (len(head) + len(body)).to_bytes(4, "big") + head + body
            assert plain(written) == (Outgoing, len(frame), frame)
            in_python = codec._decode_response_in_python(key, version, frame[4:])
            view = memoryview(frame)[4:]
            assert plain(each.decode_response(view)) == plain(
                codec._decode_response_in_python(key, version, view)
            )
            assert each.decode_response(frame[4:]) == in_python


@pytest.mark.slow
def test_what_is_damaged_is_read_as_in_python_or_left_to_it(functions: list[Functions]) -> None:
    random = Random(1)
    read = left = 0
    for each in functions:
        for seed in range(4 * ROUNDS):
            message = random_struct(each.cls, each.version, Random(seed))
            body = memoryview(damaged(message.encode_body(each.version), random))
            budget = random.choice((1 << 24, 1000, 2, 0))
            position = random.choice((0, 0, 0, 1, len(body), len(body) + 1, -1))
            result = outcome(each.decode, body, position, budget)
            python = outcome(compile.decode, each.cls, each.version, body, position, budget)
            if result == plain(NOT_ME):
                left += 1
                if 0 <= position <= len(body):
                    assert isinstance(python, tuple)
                    assert python[0] is not tuple, (each.cls, each.version, bytes(body))
            else:
                read += 1
                assert result == python, (each.cls, each.version, bytes(body), position)
    assert min(read, left) > len(functions)


def test_every_cut_of_a_message_is_left_to_python(functions: list[Functions]) -> None:
    for each in functions:
        body = random_struct(each.cls, each.version, Random(7)).encode_body(each.version)
        for end in range(0, len(body), 1 + len(body) // 20):
            # A copy, so that what lies behind the end is no part of any buffer.
            assert each.decode(bytes(body[:end]), 0, 1 << 24) is NOT_ME


class _Number(IntEnum):
    SEVEN = 7


class _Indexed:
    def __index__(self) -> int:
        return 7


class _Payload:
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


class _Unequal:
    """Fails when it is looked at."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("no comparison")

    def __bool__(self) -> bool:
        raise ValueError("no truth")

    def __len__(self) -> int:
        raise ValueError("no length")

    __hash__ = None  # type: ignore[assignment]


def strange_values(random: Random) -> list[object]:
    return [
        None, True, False, 0, -1, 7, 128, -129, 2**15, -(2**15) - 1, 2**31, -(2**31) - 1, 2**63,
        -(2**63) - 1, 2**70, 1.5, float("nan"), float("inf"), "", "x" * 127, "y" * 32_767,
        "z" * 32_768, "\ud800", "日志", b"", b"b" * 16, b"b" * 15, b"b" * 127, bytearray(b"ab"),
        bytearray(16), memoryview(b"abc"), memoryview(b"abcd").cast("i"), memoryview(b"abcd")[::2],
        memoryview(random.randbytes(MERGE_BELOW_BYTES)), [], (), [None], [1, 2], (1, 2), ["a"],
        {"a": 1}, {1, 2}, range(3), object(), _Number.SEVEN, _Indexed(), _Unequal(), [[]],
        random.randbytes(MERGE_BELOW_BYTES - 1), random.randbytes(MERGE_BELOW_BYTES),
    ]  # fmt: skip


def places(message: Struct) -> Iterator[tuple[Struct, str]]:
    """Yield each object in a message that may be changed, with each of its attributes."""
    for field in message.FIELDS:
        yield message, field.name
        value = getattr(message, field.name)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct) and type(each).__setattr__ is object.__setattr__:
                yield from places(each)


@pytest.mark.slow
def test_values_of_the_wrong_kind_are_written_as_in_python_or_left_to_it(
    functions: list[Functions],
) -> None:
    random = Random(2)
    written = left = 0
    for each in functions:
        for _ in range(8 * ROUNDS):
            message = random_struct(each.cls, each.version, random)
            owner, name = random.choice([*places(message), *places(message)])
            if random.random() < 0.1:
                delattr(owner, name)
            else:
                setattr(owner, name, random.choice(strange_values(random)))
            result = outcome(joined, each.encode, message)
            if result == (TypeError, "can only join an iterable"):
                left += 1
                continue
            python = outcome(joined, _encode_in_python, each.version, message)
            assert result == python, (each.cls, each.version, name)
            written += 1
    assert min(written, left) > len(functions)


def test_records_go_out_as_pieces_by_reference(native: NativeCodec) -> None:
    from millstream.protocol.messages.fetch import (
        FetchableTopicResponse,
        FetchResponse,
        PartitionData,
    )

    large, small, payload = bytes(MERGE_BELOW_BYTES), b"small", _Payload(10)
    partitions = [
        PartitionData(
            partition_index=index,
            error_code=0,
            high_watermark=1,
            aborted_transactions=None,
            records=records,  # type: ignore[arg-type]
        )
        for index, records in enumerate((large, small, payload, _Payload(0), None))
    ]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="a", partitions=partitions)])
    for version in (4, 12):
        functions = Functions(native, FetchResponse, version)
        outgoing = functions.encode_response(5, response)
        assert [type(piece) for piece in outgoing.pieces] == [bytes, bytes, bytes, _Payload, bytes]
        assert outgoing.pieces[1] is large
        assert outgoing.pieces[3] is payload
        assert outgoing.size == sum(map(len, outgoing.pieces))
        pieces: list[Any] = []
        head = bytearray(8 + functions.cls.is_flexible(version))
        pieces.append(compile.encode(response, version, head, pieces))
        assert [bytes(p) for p in outgoing.pieces if p is not payload][1:] == [
            bytes(p) for p in pieces if p is not payload
        ][1:]
        assert outgoing.pieces[0][8:] == pieces[0][8:]


def test_arguments_of_the_wrong_kind_are_left_to_python(functions: list[Functions]) -> None:
    each = next(one for one in functions if issubclass(one.cls, Request))
    message = random_struct(each.cls, each.version, Random(0))
    body = message.encode_body(each.version)
    for arguments in ((), (body,), (body, "0", 1), (body, 0, 2**70), ("text", 0, 1), (1, 2, 3, 4)):
        assert each.decode(*arguments) is NOT_ME
        assert each.decode_request(*arguments) is NOT_ME
    for arguments in ((), (message,), (message, 2**31, None), (message, 1, b"c"), (None, 1, "c")):
        assert each.encode_request(*arguments) is NOT_ME
    assert each.encode_request(message, 1, "\ud800") is NOT_ME
    assert each.encode_request(message, 1, "c" * 32_768) is NOT_ME
    for arguments in ((), (message,), (None,), (1, None), (message, 1), (2**31, message)):
        assert each.encode_response(*arguments) is NOT_ME
    for arguments in ((), (b"",), (b"123",), (None,), (b"1234", 1)):
        assert each.decode_response(*arguments) is NOT_ME


def test_a_count_that_is_only_claimed_takes_no_memory(native: NativeCodec) -> None:
    from millstream.protocol.messages.metadata import MetadataRequest

    for version, body in ((1, b"\x7f\xff\xff\xff" + bytes(50)), (9, b"\xff\xff\xff\xff\x0f")):
        decode = Functions(native, MetadataRequest, version).decode
        tracemalloc.start()
        try:
            assert decode(body, 0, 1 << 40) is NOT_ME
            assert tracemalloc.get_traced_memory()[1] < 10_000
        finally:
            tracemalloc.stop()


@pytest.mark.slow
def test_nothing_is_left_behind(functions: list[Functions]) -> None:
    """Each object goes when the last who has it lets it go, whatever the outcome was."""
    random = Random(3)

    def work() -> None:
        for each in functions[:: 1 + len(functions) // 60]:
            message = random_struct(each.cls, each.version, Random(random.randrange(20)))
            body = message.encode_body(each.version)
            each.decode(body, 0, 1 << 24)
            each.decode_request(memoryview(body), 0)
            each.decode_response(body)
            each.decode(damaged(body, random), 0, 1 << 24)
            each.encode(message)
            each.encode_request(message, 1, "client")
            each.encode_response(1, message)
            owner, name = random.choice(list(places(message)))
            setattr(owner, name, random.choice(strange_values(random)))
            each.encode(message)
            each.encode_response(1, message)

    def count() -> tuple[int, int]:
        gc.collect()
        return sys.getallocatedblocks(), sum(map(sys.getrefcount, (int, str, bytes, list)))

    for _ in range(3):
        work()
    before = count()
    for _ in range(20):
        work()
    blocks, references = count()
    assert blocks - before[0] < 200
    assert abs(references - before[1]) < 50


def test_shared_objects_keep_their_count(functions: list[Functions]) -> None:
    random = Random(4)
    watched = [
        *(
            field.default_value()
            for each in functions
            for field in each.cls.FIELDS
            if field.factory is None and not field.required
        ),
        *(each.cls for each in functions),
    ]
    watched = [one for one in watched if not isinstance(one, int | str | None | bool)]

    def work() -> list[int]:
        for each in functions:
            message = random_struct(each.cls, each.version, random)
            body = message.encode_body(each.version)
            for end in (len(body), random.randrange(len(body) + 1)):
                each.decode(body[:end], 0, 1 << 24)
            each.encode(message)
            del message
        gc.collect()
        return list(map(sys.getrefcount, watched))

    before = work()  # from Python 3.12 on, code that has run keeps the classes that it met
    after = work()
    grown = [one for one, was, now in zip(watched, before, after, strict=True) if now > was + 3]
    assert not grown


def test_headers_of_requests_are_read_as_in_python_or_left_to_it(
    native: NativeCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(5)
    monkeypatch.setattr(headers, "native_codec", lambda: native)
    decode = header_decoder()
    if decode is decode_request_header:
        pytest.skip("needs the codec in C: python native/build.py")
    known = sorted(APIS)
    for _ in range(500 * ROUNDS):
        key = random.choice((*known, -1, 4, 32_767))
        version = random.choice((0, 3, 9, 12, -1, 32_767))
        client_id = random.choice((b"", b"a client", "日志".encode(), b"\xff", b"x" * 300))
        length = random.choice((len(client_id), len(client_id), -1, -2, 32_767, 2))
        head = struct.pack(">hhih", key, version, random.randint(-(2**31), 2**31 - 1), length)
        tags = random.choice((b"\0", b"\0", b"\1\5\2ab", b"\1\5\7ab", b"", b"\xff\xff\xff\xff\xff"))
        frame = head + client_id + tags + b"body"
        if random.random() < 0.2:
            frame = frame[: random.randrange(len(frame) + 1)]
        result = outcome(decode, memoryview(frame))
        assert result == outcome(decode_request_header, memoryview(frame)), frame


def test_plain_headers_are_read_in_c(native: NativeCodec) -> None:
    decode = header_decoder()
    assert type(decode) is type(len)
    for key, api in APIS.items():
        for version in (api.first_version, api.last_version):
            frame = struct.pack(">hhih", key, version, 7, 1) + b"c\0"
            assert decode(memoryview(frame)) == decode_request_header(memoryview(frame))


def nearly_sound_batch(writer: HostileWriter) -> bytes:
    """A batch of any codec in which at most one byte of the header is wrong."""
    draw = writer.random.choice
    records = [Record(index, NOW_MS + index, b"k", b"value") for index in range(draw([1, 3, 40]))]
    options = BatchOptions(codec=draw(list(Codec)), producer_id=draw([-1, 7]), base_sequence=0)
    data = bytearray(encode_batch(records, options))
    if writer.chance(0.6):
        data[draw(range(HEADER_SIZE))] ^= 1 << draw(range(8))
        if writer.chance(0.9):
            data[17:21] = checksum(memoryview(data)[21:]).to_bytes(4, "big")
    if writer.chance(0.05):
        data[8:12] = draw([2**31 - 1, 2**31, 2**32 - 1]).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_that_is_received_in_c_is_the_one_that_python_would_append(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    path = os.environ.get("MILLSTREAM_FUZZ_KERNEL")
    library = Library(Path(path)) if path else installed_kernel()
    receive = receiver(library)
    if receive is None:
        pytest.skip("needs the codec in C: python native/build.py")
    monkeypatch.setattr(kernel, "_loaded", None)
    writer = HostileWriter(700 + seed)
    received = 0
    for _ in range(200 * ROUNDS):
        data = spoilt_batch(writer) if writer.chance(0.3) else nearly_sound_batch(writer)
        view = memoryview(bytearray(data))
        compressed = len(view) > 22 and bool(view[22] & 7)
        limits = replace(
            some_limits(writer, is_strict=not compressed and writer.chance(0.5)),
            max_message_bytes=writer.random.choice([2**20, 2**20, 300]),
        )
        now_ms = writer.random.choice([NOW_MS, NOW_MS, NOW_MS, 0, MOST])
        version = writer.random.choice([3, 9])
        batch = receive(view, limits.rules_address, now_ms, version)
        if batch is None:
            continue
        received += 1
        assert batch.buffer is view
        if not compressed:
            # Recompression comes afterwards, with a kernel and without.
            limits = replace(limits, is_strict=True, codec=None)
        python = validate_produced(view, limits, version=version, now_ms=now_ms)
        if isinstance(python, UncheckedBatch):
            assert not compressed
            python = prepare(python.copy(), limits)
        assert python.buffer == view
        for name in BATCH_FIELDS:
            assert getattr(batch, name) == getattr(python, name), name
    assert received > 10 * ROUNDS


def test_an_ordinary_batch_of_every_codec_is_received_in_c() -> None:
    receive = receiver(installed_kernel())
    if receive is None:
        pytest.skip("needs the codec in C: python native/build.py")
    limits = ProduceLimits()
    for each in Codec:
        for size in (10, 1000):
            records = [Record(index, NOW_MS, b"k", bytes(size)) for index in range(20)]
            data = memoryview(encode_batch(records, BatchOptions(codec=each)))
            version = 7 if each is Codec.ZSTD else 3
            assert receive(data, limits.rules_address, NOW_MS, version) is not None
            if each is Codec.ZSTD:
                assert receive(data, limits.rules_address, NOW_MS, 6) is None
            wrong = bytearray(data)
            wrong[23:27], wrong[57:61] = (
                (2**31 - 2).to_bytes(4, "big"),
                (2**31 - 1).to_bytes(4, "big"),
            )
            wrong[17:21] = checksum(memoryview(wrong)[21:]).to_bytes(4, "big")
            assert receive(memoryview(wrong), limits.rules_address, NOW_MS, 9) is None
            wrong = bytearray(data)
            wrong[-1] ^= 1
            assert receive(memoryview(wrong), limits.rules_address, NOW_MS, 9) is None
    for arguments in ((), (data,), (bytes(data), limits.rules_address, NOW_MS, 9)):
        assert receive(*arguments) is None  # type: ignore[call-arg]


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_is_found_as_in_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    path = os.environ.get("MILLSTREAM_FUZZ_KERNEL")
    library = Library(Path(path)) if path else installed_kernel()
    if batch_finder(library, BatchPosition) is None:
        pytest.skip("needs the codec in C: python native/build.py")
    writer = HostileWriter(800 + seed)
    draw = writer.random.choice
    (tmp_path / "topic-0").mkdir()
    directory = PartitionDirectory(str(tmp_path), "topic-0", TopicPartition("topic", 0))
    found = 0
    for _ in range(20 * ROUNDS):
        log = writer.log() * draw([1, 1, 8])
        records = FileRecords(LogEnvironment(), SegmentLocation(directory, 0), 0)
        records.create(0)
        records.append(log, len(log))
        records.size -= draw([0, 0, 1, 30])
        starts = [0, *(at for at in range(len(log)) if log[at + 16 : at + 17] == b"\2"), 5]
        for _ in range(20):
            position, offset = draw(starts), draw([0, 1, 5, 7, 20, 2**31, 2**40, MOST - 3, MOST])
            for search in (records.find, records.batch_holding):
                monkeypatch.setattr(kernel, "_loaded", library)
                in_c = outcome(search, offset, position)
                monkeypatch.setattr(kernel, "_loaded", None)
                assert in_c == outcome(search, offset, position)
                found += in_c[0] is BatchPosition  # type: ignore[index]
    assert found > 20


def test_batches_are_found_in_c() -> None:
    find = batch_finder(installed_kernel(), BatchPosition)
    if find is None:
        pytest.skip("needs the codec in C: python native/build.py")
    records = [Record(index, NOW_MS, b"k", b"value") for index in range(3)]
    batches = [encode_batch(records, BatchOptions(base_offset=first)) for first in (0, 3, 6)]
    log, size = b"".join(batches), len(batches[0])
    expected = BatchPosition(100 + size, size, 3, 5, -1, NOW_MS)
    assert find(log, 0, 100, 1000, 4) == expected
    assert find(log[size:], 0, 100 + size, 1000, 0) == expected
    assert find(log, 0, 100, 1000, 9) == 100 + 3 * size
    assert find(log[:-20], 0, 100, 1000, 9) == 100 + 3 * size
    assert find(log[: size + 60], 0, 100, 1000, 3) == 100 + size
    assert find(log, 0, 100, 100 + 2 * size - 1, 3) is None
    assert find(log, -1, 100, 1000, 4) is None
