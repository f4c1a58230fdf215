"""What an Iceberg table asks of those who write to it, and loads do not keep: required columns.

``pyiceberg`` refuses each file of a load into such a table, because files do not say that a column
is without nulls.
Source: the Iceberg table spec, "Schemas and Data Types", "Identifier Field IDs".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from millstream.model.errors import ConfigError


def check_required(name: object, schema: Schema) -> None:
    """Raise ConfigError for columns that are required, also inside of structs, lists and maps."""
    required = list(_required(schema.fields))
    if not required:
        return
    identifiers = sorted(schema.identifier_field_names() & set(required))
    first = f"ALTER TABLE … DROP IDENTIFIER FIELDS {', '.join(identifiers)}, and then "
    raise ConfigError(
        f"{name}: {', '.join(required)} is NOT NULL, and nothing says of the columns of a load's "
        f"files that they have a value in each row ({first if identifiers else ''}ALTER TABLE … "
        "ALTER COLUMN … DROP NOT NULL)"
    )


def _required(fields: Iterable[NestedField], within: str = "") -> Iterator[str]:
    for each in fields:
        path = f"{within}{each.name}"
        if each.required:
            yield path
        yield from _required_in(each.field_type, path)


def _required_in(kind: IcebergType, path: str) -> Iterator[str]:
    """Yield what is required inside of a type; the key of a map always is."""
    if isinstance(kind, StructType):
        yield from _required(kind.fields, f"{path}.")
    elif isinstance(kind, ListType):
        yield from _items(kind.element_type, path, is_required=kind.element_required)
    elif isinstance(kind, MapType):
        yield from _required_in(kind.key_type, f"{path}.key")
        yield from _items(kind.value_type, path, is_required=kind.value_required)


def _items(kind: IcebergType, path: str, *, is_required: bool) -> Iterator[str]:
    if is_required:
        yield f"{path}[]"
    yield from _required_in(kind, f"{path}[]")
