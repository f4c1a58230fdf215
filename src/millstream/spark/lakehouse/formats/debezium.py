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
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

CHANGE: Final = "_change"
"""The column of a batch of changes that has one of the three."""
UPSERT: Final = 0
DELETE: Final = 1
TRUNCATE: Final = 2

ROW_OPS: Final = frozenset({"c", "u", "r"})
UNAVAILABLE: Final = "__debezium_unavailable_value"
"""Debezium's default for a column that the database did not log (unavailable.value.placeholder)."""

WITHOUT_OP: Final = "no envelope of Debezium: there is no field op"
REJECTED_TRUNCATE: Final = "a truncate, which the option truncate rejects"


def of_no_row(op: object) -> str:
    """Return why an envelope of another op is rejected."""
    return f"op {json.dumps(op)} changes no row"


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
    envelope = None if value is None else _payload(json.loads(value))
    if envelope is None:  # the tombstone behind a delete
        return Change(DELETE, key_row(None, key, fields, texts))
    if not isinstance(envelope, dict) or "op" not in envelope:
        raise ValueError(WITHOUT_OP)
    op, before, after = envelope["op"], envelope.get("before"), envelope.get("after")
    if op in ROW_OPS:
        return Change(UPSERT, _row(op, before, after, fields))
    if op == "d":
        return Change(DELETE, key_row(before, key, fields, texts))
    if op == "t":
        return Change(TRUNCATE, b"{}")
    raise ValueError(of_no_row(op))


def key_row(before: Any, key: bytes | None, fields: Sequence[str], texts: frozenset[str]) -> bytes:
    """Return the key of a row as a JSON object: from the row, and what it lacks from the record's
    key: a JSON object, or for a key of one column also a value alone, or a text.
    """
    known = before if isinstance(before, dict) else {}
    found = {name: known[name] for name in fields if known.get(name) is not None}
    if len(found) < len(fields) and key is not None:
        of_record = _key_fields(key, fields, texts)
        found |= {name: of_record[name] for name in fields if name in of_record} | found
    missing = [name for name in fields if found.get(name) is None]
    if missing:
        raise ValueError(without_key(missing))
    return json.dumps(found).encode()


def rows_of(values: Sequence[bytes]) -> list[bytes]:
    """Return the rows of envelopes, from which columns are inferred."""
    rows = []
    for value in values:
        with contextlib.suppress(ValueError, RecursionError):
            envelope = _payload(json.loads(value))
            if isinstance(envelope, dict) and isinstance(envelope.get("after"), dict):
                rows.append(json.dumps(envelope["after"]).encode())
    return rows


def _row(op: str, before: Any, after: Any, fields: Sequence[str]) -> bytes:
    if not isinstance(after, dict):
        raise ValueError(without_row(op))
    if isinstance(before, dict) and op == "u":
        other = [n for n in fields if before.get(n) is not None and before[n] != after.get(n)]
        if other:
            raise ValueError(other_key(other))
    if UNAVAILABLE in after.values():
        raise ValueError(not_logged([n for n, each in after.items() if each == UNAVAILABLE]))
    return json.dumps(after).encode()


def _payload(value: Any) -> Any:
    """Take off the wrapper of Kafka Connect, if there is one."""
    if isinstance(value, dict) and "payload" in value and "op" not in value:
        return value["payload"]
    return value


def _key_fields(key: bytes, fields: Sequence[str], texts: frozenset[str]) -> Mapping[str, Any]:
    try:
        found = _payload(json.loads(key))
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    if len(fields) > 1:
        return {}
    if fields[0] in texts and not isinstance(found, str):
        found = key.decode()
    return {fields[0]: found}
