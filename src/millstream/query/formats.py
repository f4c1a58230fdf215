"""The format of a topic in a query: as a load's, but nothing is written anywhere."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from millstream.model.errors import ConfigError
from millstream.query.settings import ACCESS_LOG, AUTO, TopicFormat
from millstream.schemas.registry import RegistryPlace
from millstream.spark.lakehouse.columns import (
    DEFINITION_OPTION,
    NothingToInferError,
    check_names,
    infer_columns,
    infer_key_type,
    read_definition,
    sample_values,
    writers_of,
)
from millstream.spark.lakehouse.formats import FormatSpec, make_format
from millstream.spark.lakehouse.formats.keys import REGISTERED
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS
from millstream.spark.lakehouse.schema_file import read_schema_file
from millstream.spark.options import SourceOptions
from millstream.spark.topics import Topics

_ACCESS_LOG_OPTIONS: Final = {"pattern": "access_log"}
_VALUE: Final = RAW_COLUMNS.get_field_index("value")


@dataclass(frozen=True, slots=True)
class ChosenFormat:
    """The format that a topic is read with."""

    name: str
    spec: FormatSpec
    is_guessed: bool = False


def choose_format(
    wanted: TopicFormat,
    topics: Topics,
    options: SourceOptions,
    registry: RegistryPlace | None = None,
) -> ChosenFormat:
    """Return the format with its columns; ConfigError where they cannot be known.

    ``registry`` is where the schemas are that records name by id.
    """
    name = wanted.kind
    if name == AUTO:
        name = _guess(sample_values(topics, options))
        registry = None  # the records are what they were taken for: they name no schema
    spec = _spec(name, wanted, registry)
    if spec.options.get("key") in REGISTERED:
        try:
            spec = replace(spec, key_type=infer_key_type(spec, topics, options))
        except NothingToInferError:
            spec = replace(spec, key_type=pa.binary())
    if spec.kind != "raw":
        spec = _with_columns(spec, wanted, topics, options)
    make_format(spec).table_schema()  # a column may have a name of ours
    return ChosenFormat(name, spec, is_guessed=wanted.kind == AUTO)


def _spec(name: str, wanted: TopicFormat, registry: RegistryPlace | None) -> FormatSpec:
    if name == ACCESS_LOG:
        options = {**wanted.options, **_ACCESS_LOG_OPTIONS}
        return FormatSpec(kind="text", options=options, registry=registry)
    given = dict(wanted.options)
    definition = b""
    if DEFINITION_OPTION in given:
        definition = read_definition(given.pop(DEFINITION_OPTION))
    writers = writers_of(given, definition)
    spec = FormatSpec(
        kind=name, options=given, definition=definition, writers=writers, registry=registry
    )
    if name in ("avro", "protobuf") and not definition and not spec.is_framed:
        raise ConfigError(
            f"format {name} needs the option definition, a file with its schema, or a schema "
            "registry (--schema-registry URL or FILE)"
        )
    return spec


def _with_columns(
    spec: FormatSpec, wanted: TopicFormat, topics: Topics, options: SourceOptions
) -> FormatSpec:
    path = wanted.schema_file
    if path is None:
        try:
            columns = infer_columns(spec, topics, options)
        except NothingToInferError:
            columns = pa.schema([])
    elif path.is_file():
        columns = read_schema_file(path, form=spec.kind)
    else:
        raise ConfigError(f"there is no schema file {path}: `millstream load` writes one")
    check_names(columns)
    return replace(spec, columns=columns)


def _guess(values: Sequence[bytes]) -> str:
    """Return json or access-log if all values are that, else raw."""
    if not values:
        return "raw"
    from millstream.spark.lakehouse.formats import json_values, text

    with contextlib.suppress(pa.ArrowInvalid, ValueError, RecursionError):
        if len(json_values.infer(list(values))):
            return "json"
    form = text.TextFormat(FormatSpec(kind="text", options=_ACCESS_LOG_OPTIONS))
    nulls = [pa.nulls(len(values), each.type) for each in RAW_COLUMNS]
    batch = pa.RecordBatch.from_arrays(nulls, schema=RAW_COLUMNS)
    batch = batch.set_column(_VALUE, RAW_COLUMNS.field(_VALUE), pa.array(values, pa.binary()))
    return "raw" if form.decode(batch).rejected else ACCESS_LOG
