"""What is encoded is decoded again, in every class and version; nothing else ever comes out."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.property.random_messages import every_version, random_struct

from millstream.model.errors import ProtocolError
from millstream.protocol.api import APIS
from millstream.protocol.codec import (
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from millstream.protocol.message import Message, Request, Response

CASES = st.sampled_from(every_version())
SEEDS = st.integers(0, 2**32)


def round_trip(cls: type[Message], version: int, seed: int) -> None:
    message = random_struct(cls, version, Random(seed))
    body = message.encode_body(version)
    read = cls.decode_body(version, body)
    assert read == message, f"{cls.__name__} v{version}, seed {seed}"
    assert read.encode_body(version) == body


def test_every_class_in_every_version_comes_back() -> None:
    for cls, version in every_version():
        round_trip(cls, version, 0)


@pytest.mark.slow
@given(case=CASES, seed=SEEDS)
@settings(max_examples=examples(4_000), deadline=None)
def test_many_messages_come_back(case: tuple[type[Message], int], seed: int) -> None:
    round_trip(*case, seed)


@given(case=CASES, seed=SEEDS, correlation_id=st.integers(-(2**31), 2**31 - 1), client_id=st.text())
@settings(deadline=None)
def test_frames_come_back(
    case: tuple[type[Message], int], seed: int, correlation_id: int, client_id: str
) -> None:
    cls, version = case
    message = random_struct(cls, version, Random(seed))
    if isinstance(message, Request):
        outgoing = encode_request(message, version, correlation_id, client_id or None)
    elif isinstance(message, Response):
        outgoing = encode_response(message.API_KEY, version, correlation_id, message)
    else:
        return
    framed = outgoing.join()
    assert int.from_bytes(framed[:4], "big") == len(framed) - 4 == outgoing.size - 4
    frame = memoryview(framed)[4:]
    if isinstance(message, Response):
        assert decode_response(message.API_KEY, version, frame) == (correlation_id, message)
        return
    header = decode_request_header(frame)
    assert (header.key, header.version) == (message.API_KEY, version)
    assert (header.correlation_id, header.client_id) == (correlation_id, client_id or None)
    assert decode_request(header, frame) == message


def damaged(body: bytes, random: Random) -> bytes:
    """Return the bytes cut off, with some changed, or with a wild number in them."""
    changed = bytearray(body)
    for _ in range(random.randint(1, 3)):
        position = random.randrange(len(changed) + 1)
        match random.randrange(4):
            case 0:
                del changed[position:]
            case 1:
                changed[position : position + 1] = random.randbytes(1)
            case 2:
                wild = random.choice(("7fffffff", "ffffffff0f", "ffffffffff7f", "8000", "ff", "7f"))
                changed[position : position + random.choice((0, 2, 4))] = bytes.fromhex(wild)
            case _:
                changed[position:position] = random.randbytes(random.randint(1, 5))
    return bytes(changed)


def give_damaged(cls: type[Message], version: int, seed: int) -> None:
    random = Random(seed)
    body = damaged(random_struct(cls, version, random).encode_body(version), random)
    try:
        message = cls.decode_body(version, body)
    except ProtocolError:
        return
    assert isinstance(message, cls)


@given(case=CASES, seed=SEEDS)
@settings(max_examples=examples(300), deadline=None)
def test_a_damaged_message_is_a_message_or_a_protocol_error(
    case: tuple[type[Message], int], seed: int
) -> None:
    give_damaged(*case, seed)


@pytest.mark.slow
@given(case=CASES, seed=SEEDS)
@settings(max_examples=examples(4_000), deadline=None)
def test_many_damaged_messages_take_little_memory(
    case: tuple[type[Message], int], seed: int
) -> None:
    cls, version = case
    round_trip(cls, version, seed)  # compiles, so that only the decoding is measured
    tracemalloc.start()
    try:
        give_damaged(cls, version, seed)
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
    finally:
        tracemalloc.stop()


@given(
    key=st.sampled_from(sorted(APIS)),
    version=st.integers(-1, 14),
    rest=st.binary(max_size=200),
)
@settings(max_examples=examples(300), deadline=None)
def test_random_frames_are_a_request_or_a_protocol_error(
    key: int, version: int, rest: bytes
) -> None:
    frame = memoryview(key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + rest)
    try:
        request = decode_request(decode_request_header(frame), frame)
    except ProtocolError:
        return
    assert key == request.API_KEY


def test_every_cut_of_a_message_is_refused() -> None:
    """No prefix of a message is a message, so a decoder never reads beyond what there is."""
    for cls, version in every_version():
        body = random_struct(cls, version, Random(7)).encode_body(version)
        for end in range(0, len(body), 1 + len(body) // 20):
            with pytest.raises(ProtocolError):
                cls.decode_body(version, body[:end])
