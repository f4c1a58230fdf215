"""Times in text: which texts are times, and which instant they are.

* ISO 8601, and with a space for the ``T``: ``2024-01-31``, ``2024-01-31 10:00``,
  ``2024-01-31T10:00:00.123456+02:00``. Web servers' ``31/Jan/2024:10:00:00 +0200`` in text.
* A time without a zone is in UTC. A date alone is its midnight. A zone is ``Z``, ``+02:00``,
  ``+0200`` or ``+02``.
* Digits behind the microseconds are cut off.
* A column without a zone (``local_timestamp``) takes times without one only.
* A number is never a time: whether it counts seconds or milliseconds, it does not say.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.spark.lakehouse.formats.format import TIMESTAMP, true_rows

_TIME: Final = (
    r"^(?P<date>\d{4}-\d\d-\d\d)"
    r"(?:[Tt ](?P<time>\d\d(?::\d\d(?::\d\d)?)?)(?:(?P<fraction>\.\d{1,6})\d*)?"
    r" ?(?P<zone>[Zz]|[+-]\d\d(?::?\d\d)?)?)?$"
)


def to_times(texts: pa.Array, kind: pa.DataType = TIMESTAMP) -> tuple[pa.Array, list[int]]:
    """Return texts as times of ``kind``, and the rows that are none, which are null.

    >>> times, bad = to_times(pa.array(["2024-01-31 10:00:00", "noon"]))
    >>> times.cast(pa.string()).to_pylist(), bad
    (['2024-01-31 10:00:00.000000Z', None], [1])
    """
    matched = pc.extract_regex(texts, _TIME)
    is_time = pc.is_valid(matched)
    parts = {name: pc.struct_field(matched, name) for name in ("date", "time", "fraction", "zone")}
    if kind.tz is None:
        is_time = pc.and_(is_time, pc.fill_null(pc.equal(parts["zone"], ""), False))
    hour = pc.equal(pc.utf8_length(parts["time"]), 2)
    time = pc.if_else(
        pc.equal(parts["time"], ""),
        "00:00",
        pc.if_else(hour, pc.binary_join_element_wise(parts["time"], ":00", ""), parts["time"]),
    )
    is_short = pc.and_(pc.equal(pc.utf8_length(time), 5), pc.not_equal(parts["fraction"], ""))
    is_time = pc.and_(is_time, pc.fill_null(pc.invert(is_short), True))
    zone = pc.if_else(pc.equal(parts["zone"], ""), "Z", pc.utf8_upper(parts["zone"]))
    whole = pc.binary_join_element_wise(parts["date"], time, "T")
    whole = pc.binary_join_element_wise(whole, parts["fraction"], zone, "")
    whole = pc.if_else(is_time, whole, pa.scalar(None, pa.string()))
    bad = true_rows(pc.and_(pc.is_valid(texts), pc.invert(pc.fill_null(is_time, False))))
    try:
        times = whole.cast(TIMESTAMP)
    except pa.ArrowInvalid:  # no such day, or hour
        times, more = _one_by_one(whole)
        bad = sorted({*bad, *more})
    return times if kind.tz is not None else times.cast(pa.timestamp("us")).cast(kind), bad


def _one_by_one(texts: pa.Array) -> tuple[pa.Array, list[int]]:
    values: list[int | None] = []
    bad = []
    for row, text in enumerate(texts):
        try:
            values.append(text.cast(TIMESTAMP).value)
        except pa.ArrowInvalid:
            values.append(None)
            bad.append(row)
    return pa.array(values, pa.int64()).cast(TIMESTAMP), bad


def to_microseconds(text: str, kind: pa.DataType) -> int:
    """Return one time as microseconds since 1970; ValueError unless it is one."""
    times, bad = to_times(pa.array([text], pa.string()), kind)
    if bad:
        raise ValueError(f"{text} is not a valid {kind}")
    micros: int = times.cast(pa.int64())[0].as_py()
    return micros
