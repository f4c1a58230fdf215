"""Records what Apache Kafka reads and writes, one message for each class and version.

``python -m tests.interop.messages`` makes random messages, lets Kafka's own classes read and write
them, and keeps Kafka's bytes and Kafka's JSON in ``kafka-messages.jsonl``. The fast tests compare
with that file, so they need no Java; it is made again when the tables change.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

from tests.interop.kafka_cluster import kafka_jars
from tests.property.random_messages import kafkas_messages, random_struct

from millstream.protocol.message import Message, Request, Response
from millstream.protocol.schema import Field

RECORDED = Path(__file__).with_name("kafka-messages.jsonl")
TEXTS = ("", "a", "log", "ключ", "x" * 130)


def kafka_class(cls: type[Message]) -> str:
    """Return the full name of Kafka's class for the same message."""
    name = cls.__name__
    if issubclass(cls, Request | Response):
        return f"org.apache.kafka.common.message.{name}Data"
    if name.startswith("TransactionLog"):
        return f"org.apache.kafka.coordinator.transaction.generated.{name}"
    if cls.__module__.endswith(".share_group_state_records"):
        return f"org.apache.kafka.coordinator.share.generated.{name}"
    if cls.__module__.endswith(".kraft_records"):
        return f"org.apache.kafka.common.metadata.{name}"
    if name.startswith("ConsumerProtocol"):
        return f"org.apache.kafka.common.message.{name}"
    return f"org.apache.kafka.coordinator.group.generated.{name}"


def short_values(field: Field, random: Random) -> Any:
    """Keep texts and bytes short, so that the file stays small."""
    if field.kind == "string":
        return random.choices(TEXTS, (4, 8, 8, 4, 1))[0]
    if field.kind in ("bytes", "records"):
        return random.randbytes(random.choice((0, 1, 5)))
    return NotImplemented


def record() -> None:
    """Ask Kafka about one message for each class and version, and write the file."""
    cases = []
    for cls, version in [(each, v) for each in kafkas_messages() for v in each.VERSIONS]:
        message = random_struct(cls, version, Random(f"{cls.__name__} {version}"), short_values)
        cases.append((cls, version, message.encode_body(version).hex()))
    given = "".join(f"{kafka_class(cls)} {version} {body}\n" for cls, version, body in cases)
    source = str(Path(__file__).with_name("KafkaCodec.java"))
    answers = subprocess.run(
        ["java", "-cp", f"{kafka_jars()}/*", source],
        input=given,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    lines = []
    for (cls, version, body), answer in zip(cases, answers, strict=True):
        written, _, value = answer.partition(" ")
        if written == "error":
            sys.exit(f"{cls.__name__} v{version}: Kafka cannot read {body}: {value}")
        row = {
            "message": cls.__name__,
            "version": version,
            "bytes": written,
            "json": json.loads(value),
        }
        lines.append(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
    RECORDED.write_text("".join(lines), encoding="utf-8")
    print(f"{len(lines)} messages in {RECORDED}")


if __name__ == "__main__":
    record()
