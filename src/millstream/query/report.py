"""What EXPLAIN says of a topic: what was pushed down, and what that made of the reading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from millstream.query.region import ANY
from millstream.query.topic_table import Scan, TopicTable
from millstream.spark.ranges import OffsetRange

_MOST_RANGES: Final = 10


def describe(table: TopicTable, *, is_read: bool) -> str:
    """Return some lines on the scans of a topic; with ``is_read`` also what they have read."""
    lines = [f"Topic {table.name}, read as {table.format.name}"]
    for scan in table.scans:
        lines += _of_scan(table, scan, is_read=is_read)
    if not table.scans:
        lines.append(
            "  not read"
            if is_read
            else "  only read once another table has rows: EXPLAIN ANALYZE reads, and tells"
        )
    return "\n".join(lines)


def _of_scan(table: TopicTable, scan: Scan, *, is_read: bool) -> list[str]:
    condition = "none" if scan.condition is None else " ".join(str(scan.condition).split())
    partitions = len({each.topic_partition for each in scan.ranges})
    lines = [
        f"  condition handed to the scan: {condition}",
        f"  to read: {scan.offsets:,} of {table.ends.offsets:,} offsets in {partitions} of "
        f"{len(table.ends.latest)} partitions{_ranges(scan.ranges)}",
    ]
    is_bounded_above = any(box.times.high < ANY.high for box in scan.region)
    if is_bounded_above and table.settings.lateness_ms is None:
        lines.append(
            "  times from above do not end the reading, because later records may have earlier "
            "times (--lateness says how much)"
        )
    if is_read:
        lines.append(f"  read: {scan.records:,} records, {scan.read_bytes:,} bytes of log")
        if scan.rejects.count:
            lines.append(f"  rejected: {scan.rejects.count:,} records")
    return lines


def _ranges(ranges: Sequence[OffsetRange]) -> str:
    if not ranges:
        return ""
    more = f" and {len(ranges) - _MOST_RANGES} more" if len(ranges) > _MOST_RANGES else ""
    return f": {', '.join(map(str, ranges[:_MOST_RANGES]))}{more}"
