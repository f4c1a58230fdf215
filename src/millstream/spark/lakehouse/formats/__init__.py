"""The formats of record values, and their decoding to columns.

A format turns a record batch of the source (`schema.COLUMN_TYPES`) into a record batch of the
table, and returns the rows that it cannot decode with the reason. Nothing is dropped: each row is
in one or the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.formats.format import Decoded, Format, FormatSpec, Rejected

__all__ = ["KINDS", "Decoded", "Format", "FormatSpec", "Rejected", "check_options", "make_format"]

KINDS = ("raw", "text", "json", "csv", "avro", "protobuf")


_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "raw": (),
    "text": ("pattern",),
    "json": ("evolve",),
    "csv": ("delimiter", "quote", "null", "header"),
    "avro": ("definition", "framing", "evolve"),
    "protobuf": ("definition", "message", "evolve"),
}


def check_options(kind: str, options: Mapping[str, str]) -> None:
    """Raise ConfigError for an option that a format does not have: ignoring it would read the wrong
    data.
    """
    for name in options:
        if name not in _OPTIONS[kind]:
            there = ", ".join(_OPTIONS[kind]) or "none"
            raise ConfigError(f"format {kind} has no option {name}; there are {there}")
    if options.get("evolve", "true") not in ("true", "false"):
        raise ConfigError(f"option evolve takes true or false, not {options['evolve']!r}")


def make_format(spec: FormatSpec) -> Format:
    """Return the format that ``spec`` describes; ConfigError for an unknown one."""
    if spec.kind == "raw":
        from millstream.spark.lakehouse.formats.raw import RawFormat

        return RawFormat(spec)
    if spec.kind == "text":
        from millstream.spark.lakehouse.formats.text import TextFormat

        return TextFormat(spec)
    if spec.kind == "json":
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
