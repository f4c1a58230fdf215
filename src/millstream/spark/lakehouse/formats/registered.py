"""What a registered schema is as a format: its columns, and how its data are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from millstream.schemas.registry import RegistryPlace, SchemaRegistry, StaticSchemas
from millstream.schemas.schema import (
    InvalidSchemaError,
    Schema,
    SchemaKey,
    SchemaType,
    UnknownSchemaError,
    named,
)
from millstream.schemas.values import Definition, definition_of
from millstream.spark.lakehouse.formats.format import FormatSpec

KINDS: Final[Mapping[str, SchemaType]] = {
    "avro": SchemaType.AVRO,
    "protobuf": SchemaType.PROTOBUF,
    "json": SchemaType.JSON,
}
"""The formats whose values may name their schemas, and what those are written in."""


class NotThisSchemaError(ValueError):
    """Records of this schema are rejected; the text is the reason."""


def place_of(spec: FormatSpec) -> RegistryPlace | None:
    """Return where the schemas of a format's ids are, None for values that name no schema."""
    if spec.registry is not None:
        return spec.registry
    if not spec.writers:
        return None
    schemas: dict[SchemaKey, Schema] = {
        number: Schema(SchemaType.AVRO, text.decode(errors="replace"))
        for number, text in spec.writers.items()
    }
    return StaticSchemas(schemas, place="the option schema_id")


def definition(
    registry: SchemaRegistry, key: SchemaKey, indexes: tuple[int, ...], kind: str
) -> Definition:
    """Return the definition that a record of ``kind`` names.

    NotThisSchemaError with a reason that names the id: unknown, of another kind, or wrong.
    RegistryAwayError and RegistryRefusedError are of the registry and no reason to reject anything.
    """
    try:
        found = registry.schema(key)
        if found.kind is not KINDS[kind]:
            raise NotThisSchemaError(f"{named(key)} is {found.kind}, not {KINDS[kind]}")
        return definition_of(found, indexes or (0,))
    except UnknownSchemaError as error:
        raise NotThisSchemaError(str(error)) from None
    except InvalidSchemaError as error:
        raise NotThisSchemaError(f"{named(key)}: {error}") from None


def columns_of(found: Definition) -> pa.Schema:
    """Return the columns of a schema; ConfigError where it has none."""
    if found.kind is SchemaType.AVRO:
        from millstream.spark.lakehouse.formats import avro

        return avro.columns_of(found.content)
    if found.kind is SchemaType.PROTOBUF:
        from millstream.spark.lakehouse.formats import protobuf

        return protobuf.columns_of(found.content, found.message)
    from millstream.spark.lakehouse.formats import json_schema

    return json_schema.columns_of(found.schema)


def reading(spec: FormatSpec, found: Definition) -> FormatSpec:
    """Return how data of this schema are read into the columns of ``spec``: no frame before them,
    by Avro's rules into the definition of ``spec`` where it has one.
    """
    options = {name: text for name, text in spec.options.items() if name in ("evolve", "message")}
    plain = replace(spec, registry=None, writers={}, options=options)
    if found.kind is SchemaType.AVRO:
        return replace(plain, definition=spec.definition or found.content, writer=found.content)
    if found.kind is SchemaType.PROTOBUF:
        options["message"] = found.message
        return replace(plain, definition=found.content)
    return plain
