"""Produced batches, right and wrong, held against what Apache Kafka 4.3 said and stored.

``produce_answers.json`` was recorded by ``tools/record_produce_answers.py``.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millstream.model.errors import ErrorCode, KafkaError
from millstream.records import kernel
from millstream.records.batch import LOG_APPEND_TIME_BIT, Batch
from millstream.records.compression import Codec
from millstream.records.limits import ProduceLimits, RecordsRefusedError
from millstream.records.record import read_records
from millstream.records.record_checks import prepare
from millstream.records.validation import claims_transaction, validate_produced

RECORDED = json.loads(Path(__file__).with_name("produce_answers.json").read_text())
HOUR_MS = 3_600_000
LIMITS = {
    "plain": ProduceLimits(),
    "compacted": ProduceLimits(is_compacted=True),
    "append": ProduceLimits(log_append_time=True),
    "before": ProduceLimits(timestamp_before_max_ms=HOUR_MS),
    "small": ProduceLimits(max_message_bytes=1000),
    "gzip": ProduceLimits(codec=Codec.GZIP),
    "uncompressed": ProduceLimits(codec=Codec.NONE),
    "gzipappend": ProduceLimits(codec=Codec.GZIP, log_append_time=True),
}


def is_left_closed(answer: dict[str, Any]) -> bool:
    """Whether Kafka opens the batch and Millstream, with ``relaxed``, appends it unread:
    docs/decisions/0069-records-are-looked-at.md.
    """
    name: str = answer["name"]
    if name.startswith("codec "):
        return not name.endswith(": nothing")
    return name.startswith("structure, gzip") or name == "create: gzip, max is 7"


def handle(
    answer: dict[str, Any], limits: ProduceLimits, now_ms: int
) -> tuple[int, list[int], bytes]:
    """Return error code, the indexes of refused records, and what would be stored."""
    records = bytes.fromhex(answer["records"])
    if claims_transaction(records):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.code, [], b""
    try:
        batch = validate_produced(records, limits, version=answer["version"], now_ms=now_ms)
        if limits.needs_preparation(batch):
            batch = prepare(batch.copy(), limits)
    except RecordsRefusedError as error:
        return error.error.code, [r.batch_index for r in error.record_errors], b""
    except KafkaError as error:
        return error.error.code, [], b""
    batch.assign(base_offset=answer["base_offset"], leader_epoch=0)
    return 0, [], batch.prefix + batch.buffer[16:]


@pytest.mark.parametrize("with_kernel", [True, False], ids=["kernel", "python"])
@pytest.mark.parametrize("validation", ["relaxed", "strict"])
@pytest.mark.parametrize(
    "answer", RECORDED["answers"], ids=[f"{a['name']}-{a['topic']}" for a in RECORDED["answers"]]
)
def test_we_answer_and_store_as_kafka_does(
    answer: dict[str, Any], validation: str, with_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not with_kernel:
        monkeypatch.setattr(kernel, "_loaded", None)
    append_time_ms = answer["log_append_time_ms"]
    now_ms = append_time_ms if append_time_ms > 0 else RECORDED["now_ms"]
    limits = replace(LIMITS[answer["topic"]], is_strict=validation == "strict")
    error, record_errors, stored = handle(answer, limits, now_ms)
    if validation == "relaxed" and is_left_closed(answer):
        assert not error
        assert stored[16:] == bytes.fromhex(answer["records"])[16:]
        return
    assert error == answer["error"]
    assert record_errors == answer.get("record_errors", [])
    kept = bytes.fromhex(answer["stored"])
    if (
        error
        or Batch(memoryview(kept)).codec
        == Batch(memoryview(bytes.fromhex(answer["records"]))).codec
    ):
        assert stored == kept
    else:
        assert_same_but_for_compression(stored, kept)


def assert_same_but_for_compression(stored: bytes, kept: bytes) -> None:
    ours, theirs = Batch(memoryview(stored)), Batch(memoryview(kept))
    ours.ensure_valid()
    ours_fields = [getattr(ours, name) for name in Batch.__slots__ if name not in DIFFER]
    assert ours_fields == [getattr(theirs, name) for name in Batch.__slots__ if name not in DIFFER]
    assert read_records(ours) == read_records(theirs)


DIFFER = {"buffer", "length", "crc"}


def test_every_kind_of_scenario_is_there() -> None:
    answers = RECORDED["answers"]
    assert len(answers) > 300
    assert {a["error"] for a in answers} == {-1, 0, 2, 10, 32, 53, 76, 87}
    rewritten = [a for a in answers if a["stored"] and a["stored"][32:] != a["records"][32:]]
    assert any(bytes.fromhex(a["stored"])[22] & LOG_APPEND_TIME_BIT for a in rewritten)
