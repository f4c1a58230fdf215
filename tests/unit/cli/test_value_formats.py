"""`consume -s`: keys and values that are not text."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from pathlib import Path

import fastavro
import pytest
import typer

from millstream.cli.arguments import UsageError
from millstream.cli.failures import CommandFailedError
from millstream.cli.record_text import Piece, as_json, compile_format
from millstream.cli.value_formats import Decode, decoders_of, decoding
from millstream.model.topic import TopicPartition
from millstream.records.record import Record

PLACE = TopicPartition("t", 3)
SCHEMA = {
    "type": "record",
    "name": "Hit",
    "fields": [
        {"name": "path", "type": "string"},
        {"name": "raw", "type": "bytes"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


def datum(path: str) -> bytes:
    stream = io.BytesIO()
    fields = {"path": path, "raw": b"\xff", "at": 1_769_860_800_000}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(SCHEMA), fields)
    return stream.getvalue()


@pytest.fixture
def registry(tmp_path: Path) -> str:
    path = tmp_path / "schemas.json"
    path.write_text(json.dumps({"schemas": [{"id": 7, "schema": SCHEMA}]}))
    return str(path)


def shown(decoders: Mapping[str, Decode], render: Piece, record: Record, *, is_json: bool) -> bytes:
    return decoding(decoders, render, as_json=is_json)(PLACE, record)


def test_avro_of_a_registry(registry: str) -> None:
    record = Record(5, 9, b"k", b"\0\0\0\0\7" + datum("/a"), (("h", b"1"),))
    found = json.loads(shown(decoders_of(["avro"], registry), as_json, record, is_json=True))
    assert found == {
        "topic": "t",
        "partition": 3,
        "offset": 5,
        "timestamp": 9,
        "key": "k",
        "value": {"path": "/a", "raw": "/w==", "at": "2026-01-31T12:00:00+00:00"},
        "headers": [{"key": "h", "value": "1"}],
    }
    text = shown(decoders_of(["avro"], registry), compile_format("%k %s"), record, is_json=False)
    assert text.startswith(b'k {"path": "/a", ')


def test_avro_of_a_schema_file(tmp_path: Path) -> None:
    path = tmp_path / "hit.avsc"
    path.write_text(json.dumps(SCHEMA))
    decoders = decoders_of([f"value=avro:{path}", "key=>i"], None)
    record = Record(0, 0, struct.pack(">i", -2), datum("/b"))
    text = shown(decoders, compile_format("%k %s"), record, is_json=False)
    assert text.startswith(b'-2 {"path": "/b"')


@pytest.mark.parametrize(
    ("form", "data", "text"),
    [
        ("i", struct.pack(">i", -2), "-2"),
        ("<q", struct.pack("<q", 1 << 40), str(1 << 40)),
        ("Hb", struct.pack(">Hb", 500, -1), "[500, -1]"),
        ("is", struct.pack(">i", 3) + b"abc", '[3, "abc"]'),
        ("s", b"abc", "abc"),
    ],
)
def test_packed_numbers(form: str, data: bytes, text: str) -> None:
    decoders = decoders_of([form], None)
    found = shown(decoders, compile_format("%s"), Record(0, 0, None, data), is_json=False)
    assert found.decode() == text


def test_what_is_not_decoded_stays_as_it_is(registry: str) -> None:
    decoders = decoders_of(["avro"], registry)
    tombstone = json.loads(shown(decoders, as_json, Record(0, 0, b"\xff", None), is_json=True))
    assert (tombstone["key_base64"], tombstone["value"]) == ("/w==", None)
    assert "key" not in tombstone


@pytest.mark.parametrize(
    "value",
    [b"", b"text", b"\0\0\0\0\7", b"\0\0\0\0\x08" + b"x", b"\0\0\0\0\7" + datum("/a") + b"x"],
)
def test_a_record_that_cannot_be_read_is_named(registry: str, value: bytes) -> None:
    with pytest.raises(CommandFailedError) as caught:
        shown(decoders_of(["avro"], registry), as_json, Record(5, 0, None, value), is_json=True)
    assert str(caught.value).startswith("the value of offset 5 in t-3 cannot be read: ")
    assert str(caught.value).endswith("(-p 3 -o 6 continues after it)")


def test_a_format_that_is_not_there_is_told_before_anything_is_read() -> None:
    for item in ("avor", "headers=avro", "key=", "<", "x"):
        with pytest.raises(typer.BadParameter):
            decoders_of([item], None)
    with pytest.raises(UsageError, match="needs --schema-registry"):
        decoders_of(["key=avro"], None)
    with pytest.raises(FileNotFoundError):
        decoders_of(["avro:/nonexistent.avsc"], None)
