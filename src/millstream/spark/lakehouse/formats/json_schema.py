"""The columns of a JSON Schema.

Read are ``type`` (a type, or one and null), ``properties``, ``items``, ``additionalProperties`` (a
map), ``format`` (``date``, ``date-time``), ``enum`` and ``const``, ``$ref`` (within the schema, or
to one that it imports), ``allOf``, and ``oneOf`` and ``anyOf`` of one type and null. A field whose
type is left open (another ``oneOf``, no type) has no column by the schema; its values give it one,
as without a schema. Values are not checked against what a schema says besides (``minimum``,
``pattern``): whoever wrote them has done that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from millstream.model.errors import ConfigError
from millstream.schemas.complete import CompleteSchema
from millstream.spark.lakehouse.formats.format import TIMESTAMP, typed
from millstream.spark.lakehouse.widening import wider

_TYPES: Final = {
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "string": pa.string(),
}
_FORMATS: Final = {"date-time": TIMESTAMP, "date": pa.date32()}
_DEEPEST: Final = 50
_MOST_PARTS: Final = 100_000
"""As many parts as a schema may have in which each ``$ref`` is replaced by what it names."""


def columns_of(schema: CompleteSchema) -> pa.Schema:
    """Return the columns of a JSON Schema; ConfigError unless it describes an object."""
    kind = _whole_type(schema, _FORMATS)
    if kind is None or not pa.types.is_struct(kind):
        raise ConfigError("the JSON Schema does not describe an object with properties")
    return typed(pa.schema(list(kind)))


def type_of(schema: CompleteSchema) -> pa.DataType:
    """Return the type of a key's JSON Schema, times as texts; ConfigError where it leaves it
    open.
    """
    kind = _whole_type(schema, {})
    if kind is None:
        raise ConfigError("the JSON Schema leaves the type open")
    return kind


def _whole_type(schema: CompleteSchema, formats: Mapping[str, pa.DataType]) -> pa.DataType | None:
    documents = {"": _parsed(schema.text), **{e.name: _parsed(e.text) for e in schema.imports}}
    for document in list(documents.values()):
        if isinstance(document, dict) and isinstance(document.get("$id"), str):
            documents.setdefault(document["$id"], document)
    try:
        return _type(documents[""], _Place(documents, "", formats))
    except (AttributeError, KeyError, TypeError) as error:  # such as a text for properties
        raise ConfigError(f"not a JSON Schema: {error}") from None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a part of a schema stands: its document, and how deep in types."""

    documents: Mapping[str, Any]
    document: str
    formats: Mapping[str, pa.DataType]
    depth: int = 0
    left: list[int] = field(default_factory=lambda: [_MOST_PARTS])

    def inside(self) -> _Place:
        if self.depth > _DEEPEST:
            raise ConfigError("the JSON Schema contains itself: it has no columns")
        self.left[0] -= 1
        if self.left[0] < 0:
            raise ConfigError(f"written out, the JSON Schema has more than {_MOST_PARTS:,} parts")
        return replace(self, depth=self.depth + 1)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not a JSON Schema: {error}") from None


def _type(schema: Any, place: _Place) -> pa.DataType | None:
    """Return the type of a schema, None where it leaves it open."""
    if not isinstance(schema, dict):
        return None
    place = place.inside()
    if "$ref" in schema:
        return _type(*_target(str(schema["$ref"]), place))
    if "allOf" in schema:
        return _all_of(schema, place)
    for choice in ("oneOf", "anyOf"):
        if choice in schema:
            return _one_of(schema[choice], place)
    kind = schema.get("type")
    if isinstance(kind, list):
        return _one_of([{**schema, "type": each} for each in kind], place)
    return _plain_type(schema, kind, place)


def _plain_type(schema: Mapping[str, Any], kind: Any, place: _Place) -> pa.DataType | None:
    """Return the type of a schema that names one type, or none."""
    if kind == "object" or (kind is None and "properties" in schema):
        return _object(schema, place)
    if kind == "array":
        item = _type(schema.get("items"), place)
        return None if item is None else pa.list_(item)
    if kind is None:
        return _of_values(schema)
    if kind == "string":
        return place.formats.get(schema.get("format", ""), pa.string())
    return _TYPES.get(kind)


def _object(schema: Mapping[str, Any], place: _Place) -> pa.DataType | None:
    properties = schema.get("properties")
    if properties:
        found = {name: _type(each, place) for name, each in properties.items()}
        return pa.struct([(name, kind) for name, kind in found.items() if kind is not None])
    values = schema.get("additionalProperties")
    item = _type(values, place) if isinstance(values, dict) else None
    return None if item is None else pa.map_(pa.string(), item)


def _all_of(schema: Mapping[str, Any], place: _Place) -> pa.DataType | None:
    rest = {name: each for name, each in schema.items() if name != "allOf"}
    found = [_type(each, place) for each in (*schema["allOf"], rest)]
    return _agreed(found)


def _one_of(choices: Any, place: _Place) -> pa.DataType | None:
    open_ones = [e for e in choices if not (isinstance(e, dict) and e.get("type") == "null")]
    found = [_type(each, place) for each in open_ones]
    return None if None in found else _agreed(found)


def _agreed(found: list[pa.DataType | None]) -> pa.DataType | None:
    """Return the type that holds all of these, None where only text would."""
    agreed: pa.DataType | None = None
    for each in found:
        if each is None:
            continue
        if agreed is None:
            agreed = each
            continue
        agreed = wider(agreed, each)
        if agreed is None:
            return None
    return agreed


def _of_values(schema: Mapping[str, Any]) -> pa.DataType | None:
    """Return the type of an enumeration's values, where they have one."""
    values = [each for each in schema.get("enum", [schema.get("const")]) if each is not None]
    if values and all(isinstance(each, str) for each in values):
        return pa.string()
    if values and all(type(each) is int for each in values):
        return pa.int64()
    return None


def _target(reference: str, place: _Place) -> tuple[Any, _Place]:
    """Return what ``$ref`` names."""
    name, _, pointer = reference.partition("#")
    document = name or place.document
    if document not in place.documents:
        raise ConfigError(f"the JSON Schema refers to {reference}, which it does not import")
    found = place.documents[document]
    for part in filter(None, pointer.split("/")):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            raise ConfigError(f"the JSON Schema refers to {reference}, which does not exist")
    return found, replace(place, document=document)
