"""Acknowledgement batches of a request: what is refused, and what they say."""

from __future__ import annotations

import pytest

from millstream.model.errors import KafkaError
from millstream.protocol.messages.share_acknowledge import AcknowledgementBatch
from millstream.share.acknowledgements import runs_of
from millstream.share.record_state import AcknowledgeType

ACCEPT, RELEASE, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW


def batch(first: int, last: int, *types: int) -> AcknowledgementBatch:
    return AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))


def test_one_type_is_for_all_offsets() -> None:
    assert runs_of([batch(3, 9, 1)], may_renew=False) == ((3, 9, ACCEPT),)


def test_equal_types_make_one_run() -> None:
    runs = runs_of([batch(3, 5, 1, 1, 1), batch(6, 9, 2, 2, 1, 0)], may_renew=False)
    assert runs == ((3, 5, ACCEPT), (6, 7, RELEASE), (8, 8, ACCEPT), (9, 9, AcknowledgeType.GAP))


@pytest.mark.parametrize(
    "batches",
    [
        [batch(5, 4, 1)],
        [batch(5, 9)],
        [batch(5, 9, 1, 1)],
        [batch(5, 5, 1, 1)],
        [batch(5, 9, 5)],
        [batch(5, 9, -1)],
        [batch(5, 9, 4)],
        [batch(5, 9, 1), batch(7, 12, 1)],
        [batch(5, 9, 1), batch(0, 3, 1)],
        [batch(-5, 3, 1)],
    ],
)
def test_nonsense_is_refused(batches: list[AcknowledgementBatch]) -> None:
    with pytest.raises(KafkaError, match="INVALID_REQUEST"):
        runs_of(batches, may_renew=False)


def test_renewing_has_to_be_announced() -> None:
    assert runs_of([batch(5, 9, 4)], may_renew=True) == ((5, 9, RENEW),)


def test_a_batch_may_begin_with_the_last_offset_of_the_one_before() -> None:
    """As with Kafka; the share partition refuses it."""
    assert runs_of([batch(5, 9, 1), batch(9, 9, 1)], may_renew=False)[1] == (9, 9, ACCEPT)
