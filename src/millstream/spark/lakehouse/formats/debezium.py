"""debezium: change data as Debezium's connectors write it, in JSON (its envelope).

::

    {"before": {…} | null, "after": {…} | null, "op": "c" | "u" | "r" | "d" | "t", "source": …}

with or without the wrapper of Kafka Connect's JsonConverter, ``{"schema": …, "payload": {…}}``. Of
each envelope a row is left, which the format json reads: the one after the change, or the key alone
of one that was deleted. Single records are read here, the usual ones as columns in ``envelopes``,
and those in Avro in ``avro_envelopes``.
Source: Debezium's documentation, "Data change events".
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from millstream.spark.lakehouse.formats.json_texts import Json, object_of, of_text, parse

CHANGE: Final = "_change"
"""The column of a batch of changes that has one of the three."""
UPSERT: Final = 0
DELETE: Final = 1
TRUNCATE: Final = 2

WRAPPER: Final = ("schema", "payload")
"""The two fields of Kafka Connect's wrapper."""
ROW_OPS: Final = frozenset({"c", "u", "r"})
UNAVAILABLE: Final = "__debezium_unavailable_value"
"""Debezium's default for a column that the database did not log (unavailable.value.placeholder)."""

WITHOUT_OP: Final = "no envelope of Debezium: there is no field op"
REJECTED_TRUNCATE: Final = "a truncate, which the option truncate rejects"


def of_no_row(op: str) -> str:
    """Return why an envelope of another op, as JSON, is rejected."""
    return f"op {op} changes no row"


def without_row(op: object) -> str:
    """Return why an envelope without its row is rejected."""
    return f"op {op} without a row in the field after"


def other_key(names: Sequence[str]) -> str:
    """Return why an update is rejected that changed these columns of the key."""
    return f"an update changed {', '.join(names)} of the key: a delete and a create are needed"


def not_logged(names: Sequence[str]) -> str:
    """Return why a row is rejected that has placeholders in these columns."""
    return (
        f"the database did not log {', '.join(names)} (in PostgreSQL: ALTER TABLE … REPLICA "
        "IDENTITY FULL)"
    )


def without_key(names: Sequence[str]) -> str:
    """Return why a delete is rejected whose row and record lack these columns of the key."""
    return f"the deleted row has no key: {', '.join(names)} is in no part of it"


class Change(NamedTuple):
    """What a record does to a table, and the JSON object that says to which row."""

    kind: int
    row: bytes | None


def read_envelope(
    value: bytes | None, key: bytes | None, fields: Sequence[str], texts: frozenset[str]
) -> Change:
    """Read one record; ValueError for one that changes no row, or that cannot be read.

    ``fields`` are the key, ``texts`` those of them that are columns of texts.
    """
    envelope = None if value is None else _payload(parse(value))
    if envelope is None or envelope.value is None:  # the tombstone behind a delete
        return Change(DELETE, key_row(None, key, fields, texts))
    found = envelope.members()
    if "op" not in found:
        raise ValueError(WITHOUT_OP)
    op, before, after = found["op"].value, found.get("before"), found.get("after")
    if isinstance(op, str) and op in ROW_OPS:
        return Change(UPSERT, _row(op, before, after, fields))
    if op == "d":
        return Change(DELETE, key_row(before, key, fields, texts))
    if op == "t":
        return Change(TRUNCATE, b"{}")
    raise ValueError(of_no_row(found["op"].text))


def key_row(
    before: Json | None, key: bytes | None, fields: Sequence[str], texts: frozenset[str]
) -> bytes:
    """Return the key of a row as a JSON object: from the row, and what it lacks from the record's
    key: a JSON object, or for a key of one column also a value alone, or a text.
    """
    known = {} if before is None else before.members()
    found = {name: known[name] for name in fields if name in known and not known[name].is_null}
    if len(found) < len(fields) and key is not None:
        of_record = _key_fields(key, fields, texts)
        found |= {name: of_record[name] for name in fields if name in of_record} | found
    missing = [name for name in fields if name not in found or found[name].is_null]
    if missing:
        raise ValueError(without_key(missing))
    return object_of(found)


def rows_of(values: Sequence[bytes]) -> list[bytes]:
    """Return the rows of envelopes, from which columns are inferred."""
    rows = []
    for value in values:
        with contextlib.suppress(ValueError, RecursionError):
            after = _payload(parse(value)).members().get("after")
            if after is not None and after.is_object:
                rows.append(after.encoded())
    return rows


def _row(op: str, before: Json | None, after: Json | None, fields: Sequence[str]) -> bytes:
    if after is None or not after.is_object:
        raise ValueError(without_row(op))
    values = after.value
    if before is not None and before.is_object and op == "u":
        old = before.value
        other = [n for n in fields if old.get(n) is not None and old[n] != values.get(n)]
        if other:
            raise ValueError(other_key(other))
    if UNAVAILABLE in values.values():
        raise ValueError(not_logged([n for n, each in values.items() if each == UNAVAILABLE]))
    return after.encoded()


def _payload(value: Json) -> Json:
    """Take off the wrapper of Kafka Connect, if there is one."""
    found = value.members()
    return found["payload"] if "payload" in found and "op" not in found else value


def key_payload(value: Json, fields: Sequence[str]) -> Json:
    """Take off the wrapper of Kafka Connect from a record's key, if there is one.

    Columns of a key may have the names ``schema`` and ``payload``. They hold no objects, which the
    wrapper's do, and beside a wrapper's two fields there is no other column of the key.
    """
    found = value.members()
    if "payload" not in found or any(name in found for name in fields if name not in WRAPPER):
        return value
    schema, payload = found.get("schema"), found["payload"]
    has_schema = schema is not None and (schema.is_object or schema.is_null)
    return payload if payload.is_object or has_schema else value


def _key_fields(key: bytes, fields: Sequence[str], texts: frozenset[str]) -> Mapping[str, Json]:
    whole = None
    with contextlib.suppress(ValueError):
        whole = parse(key)
    found = None if whole is None else key_payload(whole, fields)
    if found is not None and found.is_object:
        return found.members()
    if len(fields) > 1 or (found is not None and found is not whole and found.is_null):
        return {}
    if fields[0] in texts and (found is None or not isinstance(found.value, str)):
        # A text that is no JSON, or happens to be JSON, as 7 is.
        found = of_text(key.decode() if found is whole or found is None else found.text)
    return {} if found is None else {fields[0]: found}
