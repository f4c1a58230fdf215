"""A scrape of groups lets others be served in between, whatever the groups are like."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from millstream.server.metrics.of_groups import GroupMetrics


class Shard:
    """A coordinator with groups that have committed a number of offsets each."""

    def __init__(self, groups: int, offsets: int) -> None:
        listed = SimpleNamespace(group_state="Empty")
        self.groups = [
            SimpleNamespace(group_id=f"g{number}", members=(), listed=lambda: listed)
            for number in range(groups)
        ]
        self.committed = {"t": {index: SimpleNamespace(offset=1) for index in range(offsets)}}
        self.offsets = SimpleNamespace(of_group=lambda _: self.committed if offsets else {})


@pytest.mark.parametrize(("groups", "offsets"), [(10_000, 0), (1, 10_000)])
def test_many_groups_and_large_ones_are_looked_at_in_parts(groups: int, offsets: int) -> None:
    shard = Shard(groups, offsets)
    made = SimpleNamespace(active_shards=lambda: iter([shard]))
    services: Any = SimpleNamespace(
        clock=SimpleNamespace(monotonic_ms=lambda: 0.0),
        coordinators=SimpleNamespace(find=lambda _: SimpleNamespace(made=made)),
        metadata=SimpleNamespace(topic=lambda _: None),
    )
    parts = 0
    for family in GroupMetrics(services).of_groups(with_lag=False):
        if family is None:
            parts += 1
            shard.committed.clear()  # as a group that is deleted meanwhile
    assert parts >= 10_000 // 200
