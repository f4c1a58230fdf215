"""Whatever members of both protocols ask of one group, in whatever order, no answer is
UNKNOWN_SERVER_ERROR: the coordinator knows what to say to every request, and breaks at none.

Six clients, two of them static, speak the classic protocol and the consumer protocol as they like:
rightly, too late, with the epoch of before, with the id of another, with metadata that nobody can
read. Topics come, grow and go, time passes, the disk is slow for a while, the times of the group
change, the coordinator is loaded again, in the middle of writes too. They commit offsets inside
transactions and outside; what verifies and ends these comes late, or twice. The requests go through
the handlers, the driver of the shard and a log. Besides: nothing raises, nothing is logged as an
error, and no request stays without an answer.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.property.mixed_group import CLIENTS, World


@contextmanager
def no_error_is_logged() -> Iterator[None]:
    """Raise what is logged as an error inside."""

    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raised = record.exc_info[1] if record.exc_info else None
            found.append(f"{record.getMessage()}: {raised!r}")

    found: list[str] = []
    handler = Raising(logging.ERROR)
    root = logging.getLogger("millstream")
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
    assert not found


KINDS: Final = (
    *["join"] * 3,
    *["sync"] * 2,
    "heartbeat",
    "leave",
    *["beat"] * 3,
    "beat away",
    "downgrade",
    *["rebalance"] * 3,
    *["commit"] * 2,
    *["commit in transaction"] * 2,
    "verified",
    *["end transaction"] * 2,
    *["fetch"] * 2,
    "times",
    "delete",
    "look",
    "topic",
    *["wait"] * 2,
    "swap",
    "reload",
    "hold",
    *["release"] * 2,
)
STEPS: Final = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, CLIENTS - 1), st.integers(0, 23)), max_size=80
)


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(STEPS)
def test_no_request_of_a_mixed_group_is_an_unknown_server_error(
    steps: list[tuple[str, int, int]],
) -> None:
    with tempfile.TemporaryDirectory() as directory, no_error_is_logged():
        world = World(Path(directory))
        try:
            for kind, who, how in steps:
                world.step(kind, who, how)
            world.release()
            world.wait(600_000)
            assert not [text for text, reply in world.waiting if not reply.done]
        finally:
            world.close()
