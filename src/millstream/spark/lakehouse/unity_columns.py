"""The columns of a Delta table as Unity Catalog lists them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

_NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "byte": ("BYTE", "tinyint"),
    "short": ("SHORT", "smallint"),
    "integer": ("INT", "int"),
    "long": ("LONG", "bigint"),
}
"""Types that have another name in SQL: what the API calls them, and what Spark SQL does."""
_DECIMAL: Final = re.compile(r"decimal\((\d+), ?(\d+)\)")
_PLAIN: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def unity_column(column: Mapping[str, Any], position: int) -> dict[str, Any]:
    """Return a field of Delta's schema in JSON as a column of Unity Catalog."""
    kind = column["type"]
    found = {
        "name": column["name"],
        "type_text": sql_type(kind),
        "type_json": json.dumps({**column, "metadata": column.get("metadata") or {}}),
        "type_name": _type_name(kind),
        "position": position,
        "nullable": column.get("nullable", True),
    }
    decimal = _DECIMAL.fullmatch(kind) if isinstance(kind, str) else None
    if decimal is not None:
        found |= {"type_precision": int(decimal[1]), "type_scale": int(decimal[2])}
    return found


def sql_type(kind: Any) -> str:
    """Return a type of Delta's schema in Spark's SQL."""
    if isinstance(kind, str):
        return _NAMES[kind][1] if kind in _NAMES else kind.replace(", ", ",")
    if kind["type"] == "array":
        return f"array<{sql_type(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{sql_type(kind['keyType'])},{sql_type(kind['valueType'])}>"
    fields = (f"{_quoted(each['name'])}:{sql_type(each['type'])}" for each in kind["fields"])
    return f"struct<{','.join(fields)}>"


def _type_name(kind: Any) -> str:
    if not isinstance(kind, str):
        return str(kind["type"]).upper()
    return _NAMES[kind][0] if kind in _NAMES else kind.partition("(")[0].upper()


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"
