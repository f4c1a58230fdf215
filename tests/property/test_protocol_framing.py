"""Frames are the same however the network cuts the stream."""

from __future__ import annotations

import struct

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from millstream.protocol.framing import MIN_FREE_BYTES, FrameReader

SIZES = st.one_of(st.integers(1, 300), st.integers(1, 70_000))
CUTS = st.one_of(st.integers(1, 10), st.integers(1, 5_000), st.just(1 << 20))


@given(sizes=st.lists(SIZES, max_size=20), cuts=st.lists(CUTS, min_size=1, max_size=20))
@settings(max_examples=examples(60), deadline=None)
def test_a_stream_gives_its_frames_however_it_is_cut(sizes: list[int], cuts: list[int]) -> None:
    bodies = [bytes([index % 251]) * size for index, size in enumerate(sizes)]
    stream = b"".join(struct.pack(">i", len(body)) + body for body in bodies)
    reader = FrameReader(1 << 20)
    frames = []
    position = step = 0
    while position < len(stream):
        space = reader.writable()
        assert len(space) >= MIN_FREE_BYTES
        cut = cuts[step % len(cuts)] if step < 500 else len(space)
        count = min(len(space), cut, len(stream) - position)
        space[:count] = stream[position : position + count]
        reader.received(count)
        position += count
        step += 1
        while (frame := reader.next_frame()) is not None:
            frames.append(bytes(frame))
    assert frames == bodies
    assert reader.frame_pending == 0
