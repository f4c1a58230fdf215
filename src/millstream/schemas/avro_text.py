"""One text of an Avro schema and its imports. Pure.

Names are written in full, and a type stands where it is used first, as Avro wants it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from millstream.schemas.complete import CompleteSchema
from millstream.schemas.schema import InvalidSchemaError

PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})


def avro_text(schema: CompleteSchema) -> str:
    """Return the schema as one JSON text; InvalidSchemaError where it is none."""
    known: dict[str, Any] = {}
    for each in schema.imports:
        _collect(_parsed(each.text), "", known)
    return json.dumps(_whole(_parsed(schema.text), "", known, set()))


def full_name(name: str, namespace: str) -> str:
    """Return a name with its namespace."""
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        # The registry keeps the name of a primitive type as a JSON text, or as it is.
        if text.strip() in PRIMITIVES:
            return text.strip()
        raise InvalidSchemaError("the schema is not JSON, as an Avro schema is") from None


def _own_name(value: Mapping[str, Any], namespace: str) -> str:
    name = value.get("name")
    if not isinstance(name, str):
        raise InvalidSchemaError(f"an Avro {value['type']} has no name")
    return full_name(name, str(value.get("namespace", namespace)))


def _collect(value: Any, namespace: str, known: dict[str, Any]) -> None:
    """Note the named types of an import, each with its full name."""
    if isinstance(value, list):
        for each in value:
            _collect(each, namespace, known)
    elif isinstance(value, dict):
        if value.get("type") in _NAMED:
            name = _own_name(value, namespace)
            namespace = name.rpartition(".")[0]
            known[name] = {**value, "name": name}
            for each in value.get("fields", ()):
                _collect(each.get("type"), namespace, known)
        else:
            for key in ("type", "items", "values"):
                _collect(value.get(key), namespace, known)


def _whole(value: Any, namespace: str, known: Mapping[str, Any], seen: set[str]) -> Any:
    """Return a schema with its imports in it; ``seen`` are the types that stand before it."""
    if isinstance(value, str):
        if value in PRIMITIVES:
            return value
        name = full_name(value, namespace)
        if name in seen or name not in known:
            return name
        return _whole(known[name], "", known, seen)
    if isinstance(value, list):
        return [_whole(each, namespace, known, seen) for each in value]
    if not isinstance(value, dict) or "type" not in value:
        raise InvalidSchemaError("not an Avro schema")
    if value["type"] in _NAMED:
        return _named(value, namespace, known, seen)
    more = {k: _whole(value[k], namespace, known, seen) for k in ("items", "values") if k in value}
    if value["type"] in ("array", "map"):
        return {**value, **more}
    return {**value, "type": _whole(value["type"], namespace, known, seen)}


def _named(
    value: Mapping[str, Any], namespace: str, known: Mapping[str, Any], seen: set[str]
) -> Any:
    name = _own_name(value, namespace)
    seen.add(name)
    found = {**value, "name": name}
    found.pop("namespace", None)
    inner = name.rpartition(".")[0]
    if "fields" in value:
        found["fields"] = [
            {**each, "type": _whole(each.get("type"), inner, known, seen)}
            for each in value["fields"]
        ]
    return found
