"""What `log dump` shows: to a person a heading and aligned columns for each kind of file, to a pipe
cells.

Lines are written as they are read, so a large file begins at once; widths are therefore fixed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Final

from millstream.cli.log_dump import Entry
from millstream.cli.output import Cell
from millstream.model.errors import MillstreamError

_BATCH: Final = "{:>11} {:>9}  {:>21} {:>7} {:>5}  {:<7} {:<33} {}"
_OFFSET_END: Final = 44
"""Column at which the offsets of batches end; those of records end there too."""

_MEASURED: Final = 1000
"""How many entries of an index are looked at before the first is printed, for their widths."""


def text_lines(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the lines for one file's entries under a heading."""
    remaining = iter(entries)
    first = next(remaining, None)
    if first is None:
        yield "(no entries)"
    elif first.keys() & {"codec", "zeros", "damaged"}:
        yield _BATCH.format(
            "position", "bytes", "offsets", "records", "epoch", "codec", "time (UTC)", ""
        ).rstrip()
        for entry in chain((first,), remaining):
            yield from _batch_lines(entry)
    else:
        yield from _table(chain((first,), remaining))


def _table(entries: Iterator[Entry]) -> Iterator[str]:
    measured: list[Entry] = []
    failure: Exception | None = None
    try:
        measured.extend(islice(entries, _MEASURED))
    except (MillstreamError, OSError) as error:
        failure = error
    names = {name: name.replace("_", " ") for name in measured[0]}
    widths = {
        name: max(len(heading), *(len(_word(entry.get(name))) for entry in measured))
        for name, heading in names.items()
    }
    headings: Entry = dict(names)
    for row in chain((headings,), measured, entries if failure is None else ()):
        yield "  ".join(f"{_word(row.get(name)):<{widths[name]}}" for name in names).rstrip()
    if failure is not None:
        raise failure


def _word(value: object) -> str:
    return "-" if value is None else str(value)


def _batch_lines(entry: Entry) -> Iterator[str]:
    if "zeros" in entry:
        yield f"{entry['position']:>11} {entry['zeros']:>9}  zeros, preallocated"
        return
    if "damaged" in entry:
        yield f"{entry['position']:>11} {entry['damaged']:>9}  no batch that is whole"
        return
    is_legacy = entry["magic"] != 2
    first = entry["offset"] if is_legacy else entry["base_offset"]
    last = first if is_legacy else entry["last_offset"]
    records = entry.get("records")
    assert isinstance(records, list | None)
    count = entry.get("count", "?" if records is None else len(records))
    if is_legacy and entry["codec"] == "none":
        count = 1
    yield _BATCH.format(
        _word(entry["position"]),
        _word(entry["size"]),
        f"{first}" if first == last else f"{first}..{last}",
        _word(count),
        _word(entry.get("leader_epoch", "-")),
        _word(entry["codec"]),
        _times(entry),
        "  ".join(_notes(entry)),
    ).rstrip()
    for record in records or () if "marker" not in entry else ():
        yield record_text(record, offset_width=_OFFSET_END)


def cells(entries: Iterable[Entry]) -> Iterator[list[Cell]]:
    """Yield rows for a pipe. What a log holds begins with its kind: a batch, a record of the batch
    before it, zeros, or bytes that are damaged.
    """
    for entry in entries:
        if "zeros" in entry or "damaged" in entry:
            kind = "zeros" if "zeros" in entry else "damaged"
            yield [kind, _cell(entry["position"]), _cell(entry[kind])]
        elif "codec" in entry:
            yield from _batch_cells(entry)
        else:
            yield [_cell(value) for value in entry.values()]


def _batch_cells(entry: Entry) -> Iterator[list[Cell]]:
    offset = entry.get("offset")
    yield [
        "batch",
        *(_cell(entry[name]) for name in ("position", "size")),
        *(_cell(entry.get(name, offset)) for name in ("base_offset", "last_offset")),
        *(_cell(entry.get(name)) for name in ("count", "leader_epoch", "codec")),
        _cell(entry["timestamp_type"]),
        *(
            _cell(entry.get(name, entry.get("timestamp")))
            for name in ("base_timestamp", "max_timestamp")
        ),
        "; ".join(_notes(entry)) or None,
    ]
    records = entry.get("records")
    assert isinstance(records, list | None)
    for record in records or () if "marker" not in entry else ():
        yield record_cells(record)


def record_cells(record: Mapping[str, object]) -> list[Cell]:
    """Return the cells of a record as ``dump_file`` gives it: offset, time, key, value; what is no
    text is in base64.
    """
    found = (record.get(name, record.get(f"{name}_base64")) for name in ("key", "value"))
    return ["record", _cell(record["offset"]), _cell(record["timestamp"]), *map(_cell, found)]


def _cell(value: object) -> Cell:
    if value is None or isinstance(value, str | int | float):
        return value
    return json.dumps(value, ensure_ascii=False)


def _times(entry: Entry) -> str:
    """Return the span of a batch's timestamps; "=" marks those that the broker set."""
    least, most = (
        entry.get(name, entry.get("timestamp")) for name in ("base_timestamp", "max_timestamp")
    )
    assert isinstance(least, int)
    assert isinstance(most, int)
    if entry["timestamp_type"] == "log_append_time":
        return f"= {moment(most)}"
    if most == least or "delete_horizon_ms" in entry:
        return moment(most)
    return f"{moment(least)} +{most - least} ms"


def _notes(entry: Entry) -> Iterator[str]:
    if not entry["is_valid"]:
        yield "CRC IS WRONG"
    if entry["magic"] != 2:
        yield f"magic {entry['magic']}"
        return
    if entry["producer_id"] != -1:
        yield f"producer {entry['producer_id']}/{entry['producer_epoch']}"
        if entry["base_sequence"] != -1:
            yield f"sequence {entry['base_sequence']}"
    if "marker" in entry:
        yield f"{entry['marker']} marker, coordinator epoch {entry['coordinator_epoch']}"
    elif entry["is_control"]:
        yield "control"
    elif entry["is_transactional"]:
        yield "transactional"
    if "delete_horizon_ms" in entry:
        horizon = entry["delete_horizon_ms"]
        assert isinstance(horizon, int)
        yield f"delete horizon {moment(horizon)}"


def moment(timestamp_ms: int) -> str:
    """Return milliseconds since 1970 as a time in UTC; "no time" for a negative number."""
    if timestamp_ms < 0:
        return "no time"
    try:
        when = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"@{timestamp_ms}"
    return f"{when:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03}"


_SHOWN_BYTES: Final = 120


def record_text(record: Mapping[str, object], offset_width: int = 0) -> str:
    """Return one line for a record as ``dump_file`` gives it."""
    pieces = [f"{record['offset']:>{offset_width}}"]
    timestamp = record["timestamp"]
    assert isinstance(timestamp, int)
    pieces.append(moment(timestamp))
    if "type" in record or "undecodable" in record:
        pieces += (f"{name}={_short(record[name])}" for name in _DECODED if name in record)
        return "  ".join(pieces)
    pieces += (_payload(record, name) for name in ("key", "value"))
    headers = record.get("headers")
    assert isinstance(headers, list | None)
    pieces += (f"{header['key']}: {_payload(header, 'value')}" for header in headers or ())
    return "  ".join(pieces)


_DECODED: Final = ("type", "key", "version", "value", "undecodable")


def _payload(fields: Mapping[str, object], name: str) -> str:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        return f"{name}=base64:{_cut(str(encoded))}"
    return f"{name}={_short(fields[name])}"


def _short(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    text = str(value)
    shown = _cut(text)
    return shown if text.isprintable() else json.dumps(shown, ensure_ascii=False)


def _cut(text: str) -> str:
    if len(text) <= _SHOWN_BYTES:
        return text
    return f"{text[:_SHOWN_BYTES]}… ({len(text)} characters)"
