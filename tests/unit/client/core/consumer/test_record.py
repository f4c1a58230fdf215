"""What a user may mean by an offset."""

from __future__ import annotations

import numpy as np
import pytest

from millstream.client.core.consumer.record import OffsetAndMetadata, read_offset, read_offsets
from millstream.model.topic import TopicPartition

T0 = TopicPartition("t", 0)


def test_an_offset_is_a_whole_number_or_has_more_to_it() -> None:
    assert read_offset(5) == read_offset(np.int64(5)) == OffsetAndMetadata(5)  # type: ignore[arg-type]
    given = OffsetAndMetadata(5, "noted", 7)
    assert read_offsets({T0: given}) == {T0: given}
    assert read_offsets(None) is None


@pytest.mark.parametrize(
    "wrong",
    [
        -1,
        1 << 63,
        OffsetAndMetadata(-5),
        OffsetAndMetadata(0, "", -2),
        OffsetAndMetadata(0, "", 1 << 31),
        OffsetAndMetadata(0, "x" * 40_000),
        OffsetAndMetadata(0, "\ud800"),
    ],
)
def test_what_no_request_can_hold_or_no_log_has_is_refused(wrong: OffsetAndMetadata | int) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        read_offsets({T0: wrong})


def test_what_is_no_offset_is_named() -> None:
    with pytest.raises(TypeError, match=r"1\.5"):
        read_offset(1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'t'"):
        read_offsets({"t": 5})  # type: ignore[dict-item]
