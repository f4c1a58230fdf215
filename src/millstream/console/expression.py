"""The filter of the records browser: comparisons of a record's fields, without any call.

    value.status >= 500 and not value.path == "/health"
    "timeout" in value or headers["trace"] == "on"

Python's grammar is used and nothing of Python runs: the tree is turned into functions here. It
knows comparisons, `and`, `or`, `not`, `in`, constants, and fields of key, value, headers,
partition, offset and timestamp.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from millstream.model.errors import MillstreamError

Predicate: TypeAlias = Callable[[Mapping[str, Any]], bool]
_Value: TypeAlias = Callable[[Mapping[str, Any]], Any]

NAMES: Final = ("key", "value", "headers", "partition", "offset", "timestamp")
_MAX_CHARACTERS: Final = 1000
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
}


class ExpressionError(MillstreamError):
    """A filter that cannot be understood; the text says where."""


def parse(text: str) -> Predicate:
    """Return what tells whether a record matches. Raises ExpressionError."""
    if len(text) > _MAX_CHARACTERS:
        raise ExpressionError(f"a filter has at most {_MAX_CHARACTERS:,} characters")
    try:
        value = _built(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"the filter {text!r} is not an expression") from error
    return lambda record: bool(value(record))


def _built(node: ast.expr) -> _Value:
    """Return what computes a part of an expression for a record."""
    match node:
        case ast.BoolOp(op=op, values=values):
            parts = [_built(each) for each in values]
            some = all if isinstance(op, ast.And) else any
            return lambda record: some(part(record) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            negated = _built(operand)
            return lambda record: not negated(record)
        case ast.Compare():
            return _comparison(node)
        case ast.Attribute(value=of, attr=name):
            owner = _built(of)
            return lambda record: _field(owner(record), name)
        case ast.Subscript(value=of, slice=index):
            owner, at = _built(of), _built(index)
            return lambda record: _field(owner(record), at(record))
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            items = [_built(each) for each in elements]
            return lambda record: [item(record) for item in items]
    return _leaf(node)


def _leaf(node: ast.expr) -> _Value:
    match node:
        case ast.Name(id=name) if name in NAMES:
            return lambda record: record.get(name)
        case ast.Name(id=name) if name in _CONSTANTS:
            constant = _CONSTANTS[name]
            return lambda _: constant
        case ast.Name(id=name):
            raise ExpressionError(f"{name!r} is not one of {', '.join(NAMES)}")
        case ast.Constant(value=value):
            return lambda _: value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return lambda _: -number
    raise ExpressionError(f"a filter cannot use {ast.unparse(node)!r}")


def _comparison(node: ast.Compare) -> _Value:
    if any(type(each) not in _COMPARISONS for each in node.ops):
        raise ExpressionError("compare with == != < <= > >= in, not in")
    compares = [_COMPARISONS[type(each)] for each in node.ops]
    values = [_built(each) for each in (node.left, *node.comparators)]

    def compare(record: Mapping[str, Any]) -> bool:
        found = [value(record) for value in values]
        return all(_holds(test, found[at], found[at + 1]) for at, test in enumerate(compares))

    return compare


def _holds(compare: Callable[[Any, Any], Any], one: Any, other: Any) -> bool:
    try:
        return bool(compare(one, other))
    except TypeError:  # values of different types: a record that has no such number does not match
        return False


def _field(of: Any, name: Any) -> Any:
    """Return a field of an object or a list, None where there is none."""
    if isinstance(of, dict):
        return of.get(name) if isinstance(name, str) else None
    if isinstance(of, list) and isinstance(name, int) and -len(of) <= name < len(of):
        return of[name]
    return None
