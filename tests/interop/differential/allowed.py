"""Differences from Kafka that are meant. Each names the decision record that explains it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Final


@dataclass(frozen=True)
class Allowed:
    """Lines that ``pattern`` finds in scenarios whose name ``scenario`` matches are no fault.

    ``relaxed`` ones are faults of a broker with `log.record.validation=strict`.
    """

    scenario: str
    pattern: str
    decision: str
    relaxed: bool = False

    def covers(self, scenario: str, line: str, *, is_strict: bool) -> bool:
        """Whether ``line``, one difference of ``scenario``, is meant."""
        if self.relaxed and is_strict:
            return False
        return fnmatch(scenario, self.scenario) and re.search(self.pattern, line) is not None


LOOKED_AT: Final = "0069-records-are-looked-at.md"
REASONS: Final = "0004-refusals-say-why.md"
CREATED: Final = "0005-a-created-topic-is-answered-at-once.md"
SETTINGS: Final = "0006-settings-that-differ.md"
TEXT: Final = "0013-bytes-that-are-no-text-close-the-connection.md"
ERRORS: Final = "0007-no-internal-error-for-a-wrong-request.md"
UNREAD: Final = "0070-nothing-that-protects-is-ignored.md"

FENCED: Final = "0075-transactions-end-when-their-records-say-so.md"
TOLD_AGAIN: Final = "0081-the-state-of-share-partitions.md"
EXPRESSIONS: Final = "0079-a-group-is-planned-on-a-copy.md"

OWN_SETTINGS: Final = (
    r"\.\[name=(flush\.policy|log\.flush\.policy|record\.validation|log\.record\.validation"
    r"|socket\.unsent\.max\.bytes"
    r"|socket\.request\.read\.timeout\.ms|auto\.create\.topics\.max\.count)\]"
    r": Kafka has no such field"
)
QUORUM_SETTINGS: Final = (
    r"\.\[name=(process\.roles|controller\.listener\.names|listener\.security\.protocol\.map)\]\."
)
LEFT_ALONE: Final = r"(error_code|base_offset|high_watermark|last_stable_offset|records): Kafka"

ALLOWED: Final[tuple[Allowed, ...]] = (
    Allowed("*", r'error_message: Kafka null, here "', REASONS),
    Allowed("Produce/codec_bit_on_garbage/*", LEFT_ALONE, LOOKED_AT, relaxed=True),
    Allowed("Produce/flawed_compressed_batch/record_*", LEFT_ALONE, LOOKED_AT, relaxed=True),
    Allowed("Produce/flawed_compressed_batch/count_*", LEFT_ALONE, LOOKED_AT, relaxed=True),
    Allowed("Produce/batch_of_one_kind/gzip_bit_*", LEFT_ALONE, LOOKED_AT, relaxed=True),
    Allowed("Metadata/unknown_topic_created/*", r"^step 1 .*\.topics\.", CREATED),
    Allowed("Metadata/known_and_unknown_topics/v1", r"\.\[name=\$absent\]\.", CREATED),
    Allowed("Metadata/created_topic_collides*", r"^step 1 .*error_code: Kafka 3, here 17", CREATED),
    Allowed("*", OWN_SETTINGS, SETTINGS),
    Allowed("DescribeConfigs/all_of_the_broker", QUORUM_SETTINGS, SETTINGS),
    Allowed("*/size_of_a_thread_pool/cleaner_none_*", 'error_message: Kafka "/ by zero"', REASONS),
    Allowed("CreatePartitions/far_too_many", "error_code: Kafka -1, here 44", ERRORS),
    Allowed("FindCoordinator/key_type/*", r"(error_code|node_id|host|port): Kafka", ERRORS),
    Allowed(
        "FindCoordinator/of_a_share_partition/right",
        r"(error_code|node_id|host|port): Kafka",
        CREATED,
    ),
    Allowed(
        "InitProducerId/while_a_transaction_is_open/*", "producer_epoch: Kafka 2, here 3", FENCED
    ),
    Allowed("ShareGroupHeartbeat/wrong_epochs", r"assignment: Kafka null", TOLD_AGAIN),
    Allowed("PushTelemetry/subscribed/compressed", "error_code: Kafka 87, here 0", UNREAD),
    Allowed("ConsumerGroupHeartbeat/expression/huge_repeat/*", "Kafka 0, here 128", EXPRESSIONS),
    Allowed("Frames/text_that_is_no_utf_8/*", 'here "connection closed"', TEXT),
    Allowed("Frames/list_length_minus_two/Metadata_v9", 'here "connection closed"', TEXT),
)


def unexplained(scenario: str, lines: list[str], *, is_strict: bool = False) -> list[str]:
    """Return the differences that no entry covers; ``is_strict`` is how the broker is set up."""
    return [
        line
        for line in lines
        if not any(entry.covers(scenario, line, is_strict=is_strict) for entry in ALLOWED)
    ]
