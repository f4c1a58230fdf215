from __future__ import annotations

import struct

import pytest

from millstream.model.errors import ProtocolError
from millstream.protocol.framing import (
    FULL_RECEIVE_BYTES,
    INITIAL_BYTES,
    KEPT_BYTES,
    MIN_FREE_BYTES,
    FrameReader,
)

MIB = 1024 * 1024


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def receive(reader: FrameReader, data: bytes) -> list[bytes]:
    """Give data as a socket does, as much as there is room for; return the frames."""
    frames = []
    position = 0
    while position < len(data):
        space = reader.writable()
        assert len(space) >= MIN_FREE_BYTES
        count = min(len(space), len(data) - position)
        space[:count] = data[position : position + count]
        position += count
        reader.received(count)
        while (taken := reader.next_frame()) is not None:
            frames.append(bytes(taken))
    return frames


def test_frames_in_one_receive_come_out_one_by_one() -> None:
    reader = FrameReader(100)
    assert receive(reader, frame(b"one") + frame(b"two") + frame(b"3")) == [b"one", b"two", b"3"]
    assert reader.next_frame() is None
    assert reader.frame_pending == 0


def test_a_frame_that_comes_byte_by_byte_is_whole_at_its_last_byte() -> None:
    reader = FrameReader(100)
    data = frame(b"hello")
    for index, byte in enumerate(data[:-1]):
        assert receive(reader, bytes([byte])) == []
        assert reader.frame_pending == index + 1
    assert receive(reader, data[-1:]) == [b"hello"]
    assert reader.frame_pending == 0


@pytest.mark.parametrize("size", [0, -1, -(2**31), 101, 2**31 - 1])
def test_a_size_that_is_not_positive_or_too_large_is_refused(size: int) -> None:
    reader = FrameReader(100)
    with pytest.raises(ProtocolError, match=f"a frame of {size} bytes"):
        receive(reader, struct.pack(">i", size))


def test_the_largest_allowed_frame_passes_and_the_limit_can_be_raised() -> None:
    reader = FrameReader(100)
    assert receive(reader, frame(bytes(100))) == [bytes(100)]
    reader.max_frame_bytes = 200
    assert receive(reader, frame(bytes(200))) == [bytes(200)]


def test_a_promise_of_two_gib_takes_no_memory() -> None:
    reader = FrameReader(2**31 - 1)
    assert receive(reader, struct.pack(">i", 2**31 - 1) + bytes(100)) == []
    reader.writable()
    assert reader.capacity == INITIAL_BYTES
    assert reader.frame_pending == 104


def test_the_buffer_doubles_only_as_bytes_arrive() -> None:
    reader = FrameReader(2**31 - 1)
    receive(reader, struct.pack(">i", 2**30))
    arrived = 4
    while arrived < MIB:
        receive(reader, bytes(1000))
        arrived += 1000
        assert reader.capacity <= max(INITIAL_BYTES, 2 * (arrived + MIN_FREE_BYTES))


def test_frames_larger_than_the_buffer_are_whole() -> None:
    reader = FrameReader(8 * MIB)
    bodies = [bytes([index]) * (MIB + index) for index in range(5)]
    assert receive(reader, b"".join(map(frame, bodies))) == bodies


def test_a_frame_behind_others_is_not_moved_while_it_fits() -> None:
    reader = FrameReader(MIB)
    receive(reader, frame(b"a" * 100) + frame(b"b" * 100)[:50])
    assert len(reader.writable()) == INITIAL_BYTES - 104 - 50
    assert receive(reader, frame(b"b" * 100)[50:]) == [b"b" * 100]


def test_a_frame_that_does_not_fit_behind_others_is_moved_to_the_front() -> None:
    reader = FrameReader(MIB)
    first, second = b"a" * 10_000, b"b" * 10_000
    assert receive(reader, frame(first) + frame(second)[:4_000]) == [first]
    assert len(reader.writable()) == INITIAL_BYTES - 4_000
    assert reader.capacity == INITIAL_BYTES
    assert receive(reader, frame(second)[4_000:]) == [second]


def test_asking_twice_for_space_gives_the_same_space() -> None:
    reader = FrameReader(MIB)
    receive(reader, frame(b"a" * 10_000) + frame(b"b" * 10_000)[:4_000])
    first = reader.writable()
    first[0] = 7
    second = reader.writable()
    assert len(first) == len(second)
    assert second[0] == 7


def test_a_frame_stays_as_it_is_until_space_is_asked_for() -> None:
    reader = FrameReader(MIB)
    space = reader.writable()
    data = frame(b"first") + frame(b"second")
    space[: len(data)] = data
    reader.received(len(data))
    first, second = reader.next_frame(), reader.next_frame()
    assert first is not None
    assert second is not None
    assert (bytes(first), bytes(second)) == (b"first", b"second")


def test_many_small_frames_that_fill_the_buffer_make_it_larger_up_to_a_bound() -> None:
    reader = FrameReader(MIB)
    receive(reader, frame(b"x" * 60) * 100_000)
    assert reader.capacity == FULL_RECEIVE_BYTES


def test_a_large_buffer_is_halved_when_little_comes_for_long() -> None:
    reader = FrameReader(8 * MIB)
    receive(reader, frame(bytes(MIB)))
    large = reader.capacity
    assert large >= MIB
    for _ in range(1000):
        receive(reader, frame(b"small"))
    assert reader.capacity == INITIAL_BYTES


def test_a_large_buffer_stays_while_large_frames_come() -> None:
    reader = FrameReader(8 * MIB)
    capacities = set()
    for _ in range(100):
        receive(reader, frame(bytes(MIB)))
        capacities.add(reader.capacity)
    assert len(capacities) == 1


def test_a_very_large_buffer_is_given_back_at_once() -> None:
    reader = FrameReader(64 * MIB)
    receive(reader, frame(bytes(20 * MIB)))
    assert reader.capacity > KEPT_BYTES
    reader.writable()
    assert reader.capacity == KEPT_BYTES


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"\x16\x03\x01\x02\x00\x01", "the peer speaks TLS, which this listener does not"),
        (b"GET / HTTP/1.1", "the peer speaks HTTP, and not Kafka's protocol"),
        (b"PRI * HTTP/2.0", "the peer speaks HTTP, and not Kafka's protocol"),
        (b"\x15\x03\x01\x02\x00\x01", "a frame of 352518402 bytes"),
    ],
)
def test_a_client_that_speaks_something_else_is_named(said: bytes, reason: str) -> None:
    reader = FrameReader(100 * 1024 * 1024)
    reader.writable()[: len(said)] = said
    reader.received(len(said))
    with pytest.raises(ProtocolError, match=reason):
        reader.next_frame()
