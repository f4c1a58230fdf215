"""The columns of a load whose records name their schemas, before the first batch; on the driver.

They are those of the newest schema of the topic's subject. Where the registry has no such subject,
those of the schemas that the first records name. What later records have besides becomes a column
when they come (`formats.framed`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa

from millstream.config.references import resolve
from millstream.model.errors import ConfigError
from millstream.schemas.registry import (
    RegistryPlace,
    SchemaRegistry,
    open_registry,
    registry_place,
)
from millstream.schemas.schema import InvalidSchemaError, UnknownSchemaError
from millstream.schemas.settings import read_registry_settings
from millstream.schemas.subjects import SubjectStrategy, parse_strategy, subject_name
from millstream.schemas.values import Definition, definition_of
from millstream.spark.lakehouse.formats import FormatSpec
from millstream.spark.lakehouse.formats.framed_keys import key_type
from millstream.spark.lakehouse.formats.frames import read_frames
from millstream.spark.lakehouse.formats.registered import (
    NotThisSchemaError,
    columns_of,
    definition,
    place_of,
)
from millstream.spark.lakehouse.widening import merge, wider

T = TypeVar("T")


def place_of_settings(settings: Mapping[str, str]) -> RegistryPlace | None:
    """Return where schemas are by a load's settings ``schema.registry.…``, references replaced;
    None without an address. ConfigError names the setting that is wrong.
    """
    found = read_registry_settings(resolve(settings, os.environ))
    return None if found is None else registry_place(found)


def newest_columns(spec: FormatSpec, topics: Iterable[str]) -> pa.Schema | None:
    """Return the columns of the newest schemas of some topics' values; None if there is none."""
    found = [columns_of(each) for each in _newest(spec, topics, spec.kind, is_key=False)]
    return _joined(found, merge)


def columns_of_records(spec: FormatSpec, records: Sequence[pa.RecordBatch]) -> pa.Schema | None:
    """Return the columns of the schemas that the values of records name; None if none is known."""
    found = [columns_of(each) for each in _named(spec, records, spec.kind, is_key=False)]
    return _joined(found, merge)


def newest_key_type(spec: FormatSpec, topics: Iterable[str]) -> pa.DataType | None:
    """Return the type of the newest schemas of some topics' keys; None if there is none."""
    found = [key_type(each) for each in _newest(spec, topics, spec.option("key"), is_key=True)]
    return _joined(found, _wider_key)


def key_type_of_records(spec: FormatSpec, records: Sequence[pa.RecordBatch]) -> pa.DataType | None:
    """Return the type of the schemas that the keys of records name; None if none is known."""
    found = [key_type(each) for each in _named(spec, records, spec.option("key"), is_key=True)]
    return _joined(found, _wider_key)


def _wider_key(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    return wider(one, other) or one


def _joined(found: Sequence[T], join: Callable[[T, T], T]) -> T | None:
    joined: T | None = None
    for each in found:
        joined = each if joined is None else join(joined, each)
    return joined


def _registry(spec: FormatSpec) -> SchemaRegistry:
    place = place_of(spec)
    if place is None:
        raise ConfigError(
            f"format {spec.kind} needs a schema registry (--schema-registry URL or FILE), or the "
            "option definition: a file with its schema"
        )
    return open_registry(place)


def _newest(
    spec: FormatSpec, topics: Iterable[str], kind: str, *, is_key: bool
) -> Iterable[Definition]:
    registry = _registry(spec)
    strategy = parse_strategy(spec.option("subject_strategy", "topic"))
    record = spec.option("record", "")
    subject = "" if is_key else spec.option("subject", "")
    if strategy is not SubjectStrategy.TOPIC and not record:
        return  # the records say which schemas there are
    for topic in [subject] if subject else topics:
        name = subject or subject_name(strategy, topic=topic, record=record, is_key=is_key)
        try:
            registered, complete = registry.newest(name)
            found = definition_of(complete)
        except UnknownSchemaError:
            if subject:
                raise ConfigError(f"option subject: the registry has no subject {name}") from None
            continue
        except InvalidSchemaError as error:
            raise ConfigError(f"subject {name}: {error}") from None
        if found.kind.value.lower() != kind:
            raise ConfigError(
                f"subject {name} is {found.kind}, not {kind}: give --format "
                f"{found.kind.value.lower()}"
                if not is_key
                else f"subject {name} is {found.kind}, not {kind}"
            )
        del registered
        yield found


def _named(
    spec: FormatSpec, records: Sequence[pa.RecordBatch], kind: str, *, is_key: bool
) -> Iterable[Definition]:
    registry = _registry(spec)
    seen = set()
    for batch in records:
        frames = read_frames(batch, has_indexes=kind == "protobuf", is_key=is_key)
        for group in frames.groups:
            if (group.key, group.indexes) in seen:
                continue
            seen.add((group.key, group.indexes))
            try:
                yield definition(registry, group.key, group.indexes, kind)
            except NotThisSchemaError:
                continue  # its records become dead letters
