"""Every message class in every version, against what Apache Kafka 4.3 wrote for it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from tests.property.random_messages import kafkas_messages

from millstream.protocol.message import Message
from millstream.protocol.schema import Field, Struct

RECORDED = Path(__file__).parents[2] / "interop" / "messages" / "kafka-messages.jsonl"


def as_json(message: Struct, version: int) -> dict[str, Any]:
    """Return the message as Kafka's JSON, with field names in lower case and run together."""
    values = {}
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if not field.in_version(version) or (
            field.tag is not None and value == field.default_value()
        ):
            continue
        name = field.name.replace("_", "")
        if field.kind == "records" and value is not None:
            name, value = "recordssizeinbytes", len(value)
        values[name] = _as_json(field, value, version)
    return values


def _as_json(field: Field, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(value, Struct):
        return as_json(value, version)
    if field.kind == "array":
        element = field.element if isinstance(field.element, Field) else field
        return [
            as_json(item, version) if isinstance(item, Struct) else _as_json(element, item, version)
            for item in value
        ]
    if field.kind == "uuid":
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    if field.kind == "bytes":
        return base64.b64encode(value).decode()
    return value


def lower_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key.lower(): lower_keys(item) for key, item in value.items()}
    return [lower_keys(item) for item in value] if isinstance(value, list) else value


def test_every_class_in_every_version_is_read_and_written_as_kafka_does() -> None:
    classes: dict[str, type[Message]] = {cls.__name__: cls for cls in kafkas_messages()}
    seen = set()
    for line in RECORDED.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        cls, version, body = classes[row["message"]], row["version"], bytes.fromhex(row["bytes"])
        message = cls.decode_body(version, body)
        assert as_json(message, version) == lower_keys(row["json"]), (cls.__name__, version)
        assert message.encode_body(version) == body, (cls.__name__, version)
        seen.add((cls, version))
    every_version = {(cls, version) for cls in kafkas_messages() for version in cls.VERSIONS}
    assert seen == every_version, "record again: python -m tests.interop.messages"
