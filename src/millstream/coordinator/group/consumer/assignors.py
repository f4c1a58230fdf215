"""The assignors that a broker offers, by name (``group.consumer.assignors``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from millstream.coordinator.group.consumer.range_assignor import RangeAssignor
from millstream.coordinator.group.consumer.uniform_assignor import UniformAssignor
from millstream.coordinator.group.modern.assignor import PartitionAssignor

_BUILT_IN: Final[Mapping[str, PartitionAssignor]] = MappingProxyType(
    {"uniform": UniformAssignor(), "range": RangeAssignor()}
)


def assignors(names: Iterable[str]) -> Mapping[str, PartitionAssignor]:
    """Return assignors by name, in the order of the names; the first is the default."""
    return {name: _BUILT_IN[name] for name in names}
