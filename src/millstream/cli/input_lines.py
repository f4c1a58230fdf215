"""Lines of standard input as records: plain text, or JSON objects in one of two forms.

``consume --json`` prints the first form and kcat's ``-J`` the second; the name of the value tells
them apart::

    {"topic", "partition", "offset", "timestamp", "key", "value", "headers": [{"key", "value"}]}
    {"topic", "partition", "offset", "tstype", "ts", "broker", "headers": [name, value, ...],
     "key", "payload"}

``key_base64`` and ``value_base64`` stand for bytes that are not UTF-8 in the first form. Topic,
partition, offset, tstype and broker say where a record came from and are not used. A field that
belongs to neither form, or a missing value, is an error: an object that is no record would become
a tombstone.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Never, TypeAlias

from millstream.model.errors import MillstreamError
from millstream.records.record import Header

_ORIGIN: Final = frozenset({"topic", "partition", "offset"})
_KEY: Final = ("key", "key_base64")
_VALUE: Final = ("value", "value_base64")
_OWN_FIELDS: Final = _ORIGIN | {"timestamp", "headers", *_KEY, *_VALUE}
_KCAT_FIELDS: Final = _ORIGIN | {"tstype", "ts", "broker", "headers", "key", "payload"}
_HEADER_FIELDS: Final = frozenset({*_KEY[:1], *_VALUE})
_MAX_TIMESTAMP_MS: Final = (1 << 63) - 1

_Object: TypeAlias = Mapping[str, object]


class LineError(MillstreamError):
    """A line is not a record; the text says why and has the line itself as its subject."""


class Line(NamedTuple):
    """One line of input as a record."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    partition: int | None
    timestamp_ms: int | None


class LineRules(NamedTuple):
    """How lines are read."""

    is_json: bool
    key: bytes | None
    key_separator: bytes | None
    headers: tuple[Header, ...]
    partition: int | None
    empty_is_null: bool


def parse_line(text: bytes, rules: LineRules) -> Line:
    """Read one line, given without its line end; LineError when it is not what the rules say."""
    if rules.is_json:
        return _parse_json(text, rules)
    key, value = rules.key, text
    if rules.key_separator:
        before, separator, after = text.partition(rules.key_separator)
        if separator:
            key, value = before, after
    empty = rules.empty_is_null
    return Line(
        None if empty and not key else key,
        None if empty and not value else value,
        rules.headers,
        rules.partition,
        None,
    )


def _parse_json(text: bytes, rules: LineRules) -> Line:
    fields = _object_of(text)
    if "payload" in fields and not fields.keys() & {*_VALUE}:
        _check_fields(fields, _KCAT_FIELDS, "kcat prints")
        value = _payload(fields, "payload")
        timestamp_name, headers = "ts", _kcat_headers
    else:
        _check_fields(fields, _OWN_FIELDS, "consume --json prints")
        if not fields.keys() & {*_VALUE}:
            raise LineError('it has no value (a tombstone says "value": null)')
        value = _payload(fields, *_VALUE)
        timestamp_name, headers = "timestamp", _own_headers
    return Line(
        _payload(fields, *_KEY) if fields.keys() & {*_KEY} else rules.key,
        value,
        tuple(headers(fields["headers"])) if "headers" in fields else rules.headers,
        rules.partition,
        _timestamp_ms(fields, timestamp_name),
    )


def _object_of(text: bytes) -> _Object:
    """Return the JSON object of a line."""
    if not text.strip():
        raise LineError("it is empty")
    try:
        found = json.loads(
            text.decode(), object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant
        )
    except UnicodeDecodeError as error:
        raise LineError(f"it is not UTF-8 (byte {error.start + 1})") from None
    except (ValueError, RecursionError) as error:
        raise LineError(f"it is not JSON ({error})") from None
    if not isinstance(found, dict):
        raise LineError("it is not a JSON object")
    return found


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in fields if names.count(name) > 1)
        raise LineError(f"{_shown(twice)} appears in it twice")
    return fields


def _refuse_constant(name: str) -> Never:
    raise LineError(f"{name} is not JSON")


def _check_fields(fields: _Object, known: frozenset[str], form: str) -> None:
    for name in fields:
        if name not in known:
            raise LineError(
                f"{_shown(name)} is not a field of a record as {form} it "
                f"({', '.join(sorted(known))})"
            )


def _payload(fields: _Object, name: str, encoded_name: str = "") -> bytes | None:
    """Return the bytes of ``name`` (text) or ``encoded_name`` (base64); None for null. A value
    that is neither text nor null is kept as JSON.
    """
    if encoded_name in fields:
        if name in fields:
            raise LineError(f"it has both {name} and {encoded_name}")
        encoded = fields[encoded_name]
        if encoded is None:
            return None
        try:
            return b64decode(encoded if isinstance(encoded, str) else "?", validate=True)
        except (binascii.Error, ValueError):
            raise LineError(f"{encoded_name} is not base64") from None
    text = fields[name]
    if text is None:
        return None
    try:
        return text.encode() if isinstance(text, str) else json.dumps(text).encode()
    except UnicodeEncodeError:
        raise LineError(f"{name} is not Unicode text (half of a surrogate pair)") from None


def _timestamp_ms(fields: _Object, name: str) -> int | None:
    """Return the timestamp; None where there is none, which -1 says too."""
    timestamp = fields.get(name)
    if timestamp is None or timestamp == -1:
        return None
    if type(timestamp) is not int or not 0 <= timestamp <= _MAX_TIMESTAMP_MS:
        raise LineError(f"{name} is not a number of milliseconds since 1970")
    return timestamp


def _own_headers(given: object) -> Iterable[Header]:
    if given is None:
        return
    if not isinstance(given, list):
        raise LineError("headers is not a list")
    for each in given:
        if not isinstance(each, dict):
            raise LineError("a header is not a JSON object with key and value")
        _check_fields(each, _HEADER_FIELDS, "consume --json prints")
        key = _header_key(each.get("key"))
        if not each.keys() & {*_VALUE}:
            raise LineError(f"header {_shown(key)} has no value")
        yield key, _payload(each, *_VALUE)


def _kcat_headers(given: object) -> Iterable[Header]:
    """Read a flat list in which names and values alternate."""
    if not isinstance(given, list) or len(given) % 2:
        raise LineError("headers is not a list of alternating names and values")
    for name, value in zip(given[::2], given[1::2], strict=True):
        yield _header_key(name), _payload({"a header": value}, "a header")


def _header_key(name: object) -> str:
    if not isinstance(name, str):
        raise LineError("a header has no key")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise LineError("the key of a header is not Unicode text") from None
    return name


def _shown(name: str) -> str:
    """Return a name as the error shows it, on one line however it is written."""
    return ascii(name if len(name) <= 60 else name[:60] + "...")
