"""The names that schemas are registered under: Confluent's subject naming strategies. Pure.

Records name their schemas by id, so reading needs no subject. It says where the newest schema of a
topic stands before there is a record, and where a schema is registered.
"""

from __future__ import annotations

from enum import StrEnum

from millstream.model.errors import ConfigError


class SubjectStrategy(StrEnum):
    """How a subject is named (TopicNameStrategy, RecordNameStrategy, TopicRecordNameStrategy)."""

    TOPIC = "topic"
    RECORD = "record"
    TOPIC_RECORD = "topic-record"


def subject_name(
    strategy: SubjectStrategy, *, topic: str, record: str = "", is_key: bool = False
) -> str:
    """Return the subject of a topic's values, or keys.

    ``record`` is the full name of the record (Avro), the message (Protobuf) or the title (JSON
    Schema); ConfigError where the strategy needs it and it is missing.
    """
    if strategy is SubjectStrategy.TOPIC:
        return f"{topic}-{'key' if is_key else 'value'}"
    if not record:
        raise ConfigError(f"the subject strategy {strategy} needs the full name of the record")
    return record if strategy is SubjectStrategy.RECORD else f"{topic}-{record}"


def parse_strategy(text: str) -> SubjectStrategy:
    """Read a strategy by its short name or by its Java class; ConfigError for another one."""
    wanted = text.strip().rpartition(".")[2].removesuffix("NameStrategy").lower()
    for each in SubjectStrategy:
        if wanted in (each.value, each.value.replace("-", "")):
            return each
    names = ", ".join(each.value for each in SubjectStrategy)
    raise ConfigError(f"a subject strategy is one of {names}, not {text!r}")
