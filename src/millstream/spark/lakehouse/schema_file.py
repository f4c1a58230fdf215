"""The file that pins a table's columns: inferred once, then read; people may review and edit it.

::

    {"format": "json",
     "columns": [{"name": "status", "type": "int64"},
                 {"name": "tags", "type": {"list": "string"}},
                 {"name": "user", "type": {"struct": [{"name": "id", "type": "int64"}]}}]}
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pyarrow as pa

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.formats.format import LOCAL_TIMESTAMP, TIMESTAMP
from millstream.spark.locations.location import Location

_TYPES: Final = {
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "local_timestamp": LOCAL_TIMESTAMP,
    "time": pa.time64("us"),
}
_NAMES: Final = {kind: name for name, kind in _TYPES.items()}
_DECIMAL: Final = re.compile(r"decimal\((\d+), ?(\d+)\)")


def read_schema_file(path: Location, *, form: str) -> pa.Schema:
    """Return the columns of a file; ConfigError names the file and what is wrong with it."""
    try:
        value: Any = json.loads(path.read_bytes())
        if value["format"] != form:
            raise ConfigError(f"{path} is the schema of format {value['format']}, not {form}")
        return pa.schema([_field(each) for each in value["columns"]])
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is not a schema file: {error!r}") from error


def write_schema_file(path: Location, schema: pa.Schema, *, form: str) -> None:
    """Write the columns; the file is replaced whole."""
    path.replace_with(_encoded(schema, form))


def create_schema_file(path: Location, schema: pa.Schema, *, form: str) -> bool:
    """Write the columns and return True; return False if the file exists because another load was
    first.
    """
    content = _encoded(schema, form)
    try:
        path.create(content)
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        path.replace_with(content)
    return True


def _encoded(schema: pa.Schema, form: str) -> bytes:
    value = {"format": form, "columns": [_to_json(field) for field in schema]}
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def _field(value: Any) -> pa.Field:
    return pa.field(value["name"], _type(value["type"]))


def _type(value: Any) -> pa.DataType:
    if isinstance(value, str):
        decimal = _DECIMAL.fullmatch(value)
        if decimal is not None:
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        if value not in _TYPES:
            raise ValueError(f"no type {value}; types are {', '.join(_TYPES)}, decimal(p, s)")
        return _TYPES[value]
    if "list" in value:
        return pa.list_(_type(value["list"]))
    if "map" in value:
        key, item = value["map"]
        return pa.map_(_type(key), _type(item))
    return pa.struct([_field(each) for each in value["struct"]])


def _to_json(field: pa.Field) -> dict[str, Any]:
    return {"name": field.name, "type": _type_to_json(field.type)}


def _type_to_json(kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_list(kind):
        return {"list": _type_to_json(kind.value_type)}
    if pa.types.is_map(kind):
        return {"map": [_type_to_json(kind.key_type), _type_to_json(kind.item_type)]}
    if pa.types.is_struct(kind):
        return {"struct": [_to_json(field) for field in kind]}
    return _NAMES[kind]
