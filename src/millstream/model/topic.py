"""Topics and partitions: their names, ids and the rules for both."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Final, NewType

from millstream.model.errors import ErrorCode, KafkaError

TopicId = NewType("TopicId", bytes)
"""A topic's 16-byte id (a UUID), raw: it is a dictionary key on the produce and fetch paths."""

ZERO_TOPIC_ID: Final = TopicId(bytes(16))
MAX_NAME_LENGTH: Final = 249
GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
AUDIT_LOG_TOPIC: Final = "__audit_log"
"""What this broker records of its clients; only Millstream has it."""
INTERNAL_TOPICS: Final = frozenset(
    {GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC, AUDIT_LOG_TOPIC}
)

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def topic_id_to_text(topic_id: TopicId) -> str:
    """Return the 22-character base64url form that Kafka writes and prints."""
    return base64.urlsafe_b64encode(topic_id).decode("ascii").rstrip("=")


def topic_id_from_text(text: str) -> TopicId:
    """Read the 22-character form; ValueError when it is not one."""
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != 16:
        raise ValueError(f"not a topic id: {text!r}")
    return TopicId(raw)


def validate_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION unless ``name`` is legal (Kafka: ``Topic.validate``)."""
    reason = None
    if not name:
        reason = "Topic name is invalid: the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"Topic name is invalid: '{name}' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        reason = f"Topic name is invalid: the length of '{name}' is longer than {MAX_NAME_LENGTH}"
    elif not _LEGAL_NAME.match(name):
        reason = (
            f"Topic name is invalid: '{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def collision_key(name: str) -> str:
    """Two names with the same key collide in metric names (Kafka: ``Topic.hasCollision``)."""
    return name.replace(".", "_")
