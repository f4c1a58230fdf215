"""The formats of record values, and their decoding to columns.

A format turns a record batch of the source (`schema.COLUMN_TYPES`) into a record batch of the
table, and returns the rows that it cannot decode with the reason. Nothing is dropped: each row is
in one or the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.formats.format import Decoded, Format, FormatSpec, Rejected
from millstream.spark.lakehouse.formats.keys import REGISTERED

__all__ = ["KINDS", "Decoded", "Format", "FormatSpec", "Rejected", "check_options", "make_format"]

KINDS = ("raw", "text", "json", "csv", "avro", "protobuf", "debezium")


_OF_SUBJECTS: Final = ("subject", "subject_strategy", "record")
"""Where the newest schema of a topic stands in a registry."""
_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "raw": (),
    "text": ("pattern", "key"),
    "json": ("framing", *_OF_SUBJECTS, "evolve", "key"),
    "csv": ("delimiter", "quote", "null", "header", "key"),
    "debezium": ("framing", *_OF_SUBJECTS, "evolve", "key", "truncate"),
    "avro": ("definition", "framing", "schema_id", *_OF_SUBJECTS, "evolve", "key"),
    "protobuf": ("definition", "message", "framing", *_OF_SUBJECTS, "evolve", "key"),
}


def check_options(kind: str, options: Mapping[str, str]) -> None:
    """Raise ConfigError for an option that a format does not have: ignoring it would read the wrong
    data.
    """
    for name in options:
        if name not in _OPTIONS[kind]:
            there = ", ".join(_OPTIONS[kind]) or "none"
            raise ConfigError(f"format {kind} has no option {name}; options: {there}")
    if options.get("evolve", "true") not in ("true", "false"):
        raise ConfigError(f"option evolve takes true or false, not {options['evolve']!r}")
    if options.get("truncate", "apply") not in ("apply", "reject"):
        raise ConfigError(f"option truncate takes apply or reject, not {options['truncate']!r}")
    if options.get("framing", "none") not in ("none", "confluent"):
        raise ConfigError(f"option framing takes none or confluent, not {options['framing']!r}")
    if "key" in options:
        from millstream.spark.lakehouse.formats.keys import check_kind

        check_kind(options["key"])


def make_format(spec: FormatSpec, key: Sequence[str] = ()) -> Format:
    """Return the format that ``spec`` describes; ConfigError for an unknown one.

    ``key`` are the columns that identify a row, for change data.
    """
    kind = spec.options.get("key", "binary")
    if kind == "binary" or spec.kind == "raw":
        return _make_format(spec, key)
    from millstream.spark.lakehouse.formats.keys import KeyedFormat, check_kind

    check_kind(kind)
    if kind in REGISTERED:
        from millstream.spark.lakehouse.formats.framed_keys import FramedKeys

        return FramedKeys(_make_format(spec, key), spec)
    return KeyedFormat(_make_format(spec, key), kind)


def _make_format(spec: FormatSpec, key: Sequence[str]) -> Format:
    if spec.is_framed and spec.kind == "debezium":
        from millstream.spark.lakehouse.formats.avro_envelopes import AvroEnvelopes

        return AvroEnvelopes(spec, key)
    if spec.is_framed:
        from millstream.spark.lakehouse.formats.framed import FramedFormat

        return FramedFormat(spec)
    if spec.kind == "raw":
        from millstream.spark.lakehouse.formats.raw import RawFormat

        return RawFormat(spec)
    if spec.kind == "text":
        from millstream.spark.lakehouse.formats.text import TextFormat

        return TextFormat(spec)
    if spec.kind in ("json", "debezium"):  # of which it reads the rows (changes)
        from millstream.spark.lakehouse.formats.json_lines import JsonFormat

        return JsonFormat(spec)
    if spec.kind == "csv":
        from millstream.spark.lakehouse.formats.csv_lines import CsvFormat

        return CsvFormat(spec)
    if spec.kind == "avro":
        from millstream.spark.lakehouse.formats.avro import AvroFormat

        return AvroFormat(spec)
    if spec.kind == "protobuf":
        from millstream.spark.lakehouse.formats.protobuf import ProtobufFormat

        return ProtobufFormat(spec)
    raise ConfigError(f"a format is one of {', '.join(KINDS)}, not {spec.kind!r}")
