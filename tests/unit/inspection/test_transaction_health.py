"""What the doctor says of open transactions, finding by finding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
from tests.unit.inspection.sayings import the_one

from millstream.client.core.admin.producers import ActiveProducer, TransactionDescription
from millstream.client.doctor import Severity
from millstream.inspection.transaction_health import TransactionsSight, judge_transactions
from millstream.model.topic import TopicPartition

P0: Final = TopicPartition("t", 0)
NOW: Final = 10_000_000
PRODUCER: Final = ActiveProducer(
    producer_id=7,
    producer_epoch=3,
    last_sequence=0,
    last_timestamp_ms=NOW - 5_000,
    coordinator_epoch=0,
    transaction_start_offset=100,
)
KNOWN: Final = TransactionDescription(
    transactional_id="pay",
    state="Ongoing",
    producer_id=7,
    producer_epoch=3,
    timeout_ms=60_000,
    start_time_ms=NOW - 10_000,
    partitions=(P0,),
    coordinator="b:9092",
)
OPEN: Final = TransactionsSight(
    at_ms=NOW,
    producers={P0: (PRODUCER,)},
    transactions={7: KNOWN},
    ends={P0: 350},
    stable={P0: 100},
    max_timeout_ms=900_000,
)


def test_nothing_is_open() -> None:
    assert judge_transactions(replace(OPEN, producers={}, stable={}, transactions={})) == []


@pytest.mark.parametrize(
    ("changed", "severity", "says", "mends"),
    [
        (
            {},
            Severity.NOTE,
            "Producer 7, epoch 3, of transactional id 'pay' holds the last stable offset at 100, "
            "with 250 offsets behind it: Ongoing for 10.0 s, and its coordinator at b:9092 aborts "
            "it after 1 m.",
            "txn abort --id pay",
        ),
        (
            {"transactions": {7: replace(KNOWN, start_time_ms=NOW - 40_000)}},
            Severity.RISK,
            "Ongoing for 40.0 s",
            "txn abort --id pay",
        ),
        (
            {"transactions": {7: replace(KNOWN, start_time_ms=NOW - 90_000)}},
            Severity.BROKEN,
            "which it has not done",
            "txn abort --id pay",
        ),
        (
            {"transactions": {7: replace(KNOWN, state="PrepareCommit")}},
            Severity.NOTE,
            "the end is decided, and its marker not written by the coordinator at b:9092",
            "doctor cluster",
        ),
        (
            {"transactions": {7: replace(KNOWN, state="PrepareAbort", start_time_ms=NOW - 90_000)}},
            Severity.BROKEN,
            "the end is decided",
            "doctor cluster",
        ),
        (
            {"transactions": {}},
            Severity.RISK,
            "it hangs, unless it has begun just now; after 15 m it surely does",
            "txn abort t:0 --start-offset 100",
        ),
        (
            {
                "transactions": {},
                "producers": {P0: (replace(PRODUCER, last_timestamp_ms=NOW - 1_000_000),)},
            },
            Severity.BROKEN,
            "blocks readers of committed records for ever",
            "txn abort t:0 --start-offset 100",
        ),
        (
            {"transactions": {7: replace(KNOWN, partitions=())}},
            Severity.RISK,
            "No coordinator knows the transaction",
            "txn abort t:0 --start-offset 100",
        ),
        (
            {"transactions": {}, "unsure": frozenset({7})},
            Severity.RISK,
            "do not abort it by its partition",
            "txn list --producer-id 7",
        ),
        (
            {"producers": {}},
            Severity.NOTE,
            "The last stable offset 100 is 250 offsets behind",
            "doctor cluster",
        ),
        (
            {
                "producers": {
                    P0: (replace(PRODUCER, producer_id=8, transaction_start_offset=200), PRODUCER)
                }
            },
            Severity.RISK,
            "Producer 8, epoch 3, would hold the last stable offset at 200 next",
            "txn abort t:0 --start-offset 200",
        ),
        (
            {"producers": {}, "stable": {}, "untold": {"producers of t-0": "not served"}},
            Severity.NOTE,
            "producers of t-0 could not be found out: not served",
            "cluster api-versions",
        ),
    ],
)
def test_each_finding(changed: dict[str, Any], severity: Severity, says: str, mends: str) -> None:
    the_one(judge_transactions(replace(OPEN, **changed)), severity, says, mends)
