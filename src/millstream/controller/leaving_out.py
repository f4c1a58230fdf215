"""A start that would leave out brokers that keep replicas: what it is refused with. Pure."""

from __future__ import annotations

from collections.abc import Collection

from millstream.controller.context import ControllerContext
from millstream.model.errors import ConfigError


def refuse_to_leave_out(context: ControllerContext, started: Collection[int]) -> None:
    """Raise ConfigError where a partition has a replica on a broker that is not started: its
    records would be missing, and partitions without any other replica would have no leader.
    """
    known = set(started)
    missing: set[int] = set()
    count = most = 0
    for topic in context.topics.values():
        for state in topic.partitions:
            others = set(state.replicas) - known
            if others:
                missing |= others
                count += 1
                most = max(most, len(state.replicas))
    if not missing:
        return
    every = max(missing | known) - min(missing | known) + 1
    ids = ",".join(map(str, sorted(known)))
    fewer = f" --replication-factor {len(known)}" if most > len(known) else ""
    brokers = "broker" if len(missing) == 1 else "brokers"
    partitions = "1 partition has" if count == 1 else f"{count} partitions have"
    raise ConfigError(
        f"{partitions} replicas on {brokers} {', '.join(map(str, sorted(missing)))}, "
        f"which would not be started: start with --brokers {every}, move them with "
        f"millstream cluster reassign --brokers {ids}{fewer} --execute, then stop and start again"
    )
