"""The tables that a query names, found in DuckDB's own syntax tree."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.query.settings import QueryError

if TYPE_CHECKING:
    import duckdb

_EXPLAIN: Final = re.compile(r"\s*explain(?P<analyze>\s+analyze)?\s+(?=[(\w])", re.IGNORECASE)

_OTHER_CHARACTER: Final = re.compile(r'syntax error at or near "[-.]')
_QUOTES: Final = '; a topic whose name has dashes or dots is written in double quotes: "my-topic"'


@dataclass(frozen=True, slots=True)
class Statement:
    """One SELECT, and whether its plan is asked for instead of its rows."""

    text: str
    is_explained: bool = False
    is_analyzed: bool = False
    """With ``is_explained``: it runs too, and what was read is told."""


def read_statement(text: str) -> Statement:
    """Take EXPLAIN or EXPLAIN ANALYZE off a query."""
    found = _EXPLAIN.match(text)
    if found is None:
        return Statement(text)
    return Statement(text[found.end() :], True, found["analyze"] is not None)


@dataclass(frozen=True, slots=True)
class TableNames:
    """The tables that a SELECT names, each once; one with a schema before it has a dot."""

    names: tuple[str, ...]
    defined: frozenset[str]
    """Those that the query itself defines, by WITH, in lower case; one may be a topic besides."""


def table_names(connection: duckdb.DuckDBPyConnection, query: str) -> TableNames:
    """Return the tables that a query names. QueryError if it is not one SELECT."""
    (text,) = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()[0]
    tree = json.loads(text)
    if tree.get("error"):
        message = " ".join(tree.get("error_message", "").split())
        if tree.get("error_type") == "not implemented":
            raise QueryError("a query is one SELECT: it reads, and writes nothing")
        quoted = _OTHER_CHARACTER.search(message) is not None
        raise QueryError(f"not SQL: {message}{_QUOTES if quoted else ''}")
    if len(tree["statements"]) != 1:
        raise QueryError(f"a query is one SELECT, not {len(tree['statements'])} statements")
    names: dict[str, None] = {}
    defined: set[str] = set()
    for node in _objects(tree):
        if node.get("type") == "BASE_TABLE" and node.get("table_name"):
            parts = (node.get("catalog_name"), node.get("schema_name"), node["table_name"])
            names[".".join(filter(None, parts))] = None
        defined.update(each["key"].lower() for each in node.get("cte_map", {}).get("map", ()))
    return TableNames(tuple(names), frozenset(defined))


def _objects(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for each in node.values():
            yield from _objects(each)
    elif isinstance(node, list):
        for each in node:
            yield from _objects(each)
