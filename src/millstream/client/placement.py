"""Plans reassignments: onto other brokers or off some, evenly and with little data copied.

Pure. A partition keeps every replica that may stay; replicas that have to move, or of which a
broker has too many, go to the broker with the fewest, if possible in a rack that has none of the
partition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from millstream.model.topic import TopicPartition

Placement = dict[TopicPartition, tuple[int, ...]]


def plan_placement(
    present: Mapping[TopicPartition, Sequence[int]],
    brokers: Collection[int],
    racks: Mapping[int, str | None] | None = None,
    *,
    replication_factor: int | None = None,
) -> Placement:
    """Return the new replicas, on ``brokers``, of the partitions that have to move. With
    ``replication_factor`` every partition gets so many; else it has as many as it had.

    ValueError when a partition is to have more replicas than there are brokers.
    """
    racks = racks or {}
    wanted = {
        topic_partition: replication_factor or len(replicas)
        for topic_partition, replicas in present.items()
    }
    most = max(wanted.values(), default=0)
    if most > len(brokers):
        raise ValueError(f"{most} replicas do not fit on {len(brokers)} brokers")
    placed = {
        topic_partition: [b for b in replicas if b in brokers][: wanted[topic_partition]]
        for topic_partition, replicas in present.items()
    }
    load = dict.fromkeys(sorted(brokers), 0)
    for replicas in placed.values():
        for broker_id in replicas:
            load[broker_id] += 1
    for topic_partition, replicas in placed.items():
        while len(replicas) < wanted[topic_partition]:
            chosen = _least(load, replicas, racks)
            replicas.append(chosen)
            load[chosen] += 1
    _even_out(placed, load, racks)
    _spread_leaders(placed, present)
    return {
        topic_partition: tuple(replicas)
        for topic_partition, replicas in placed.items()
        if list(present[topic_partition]) != replicas
    }


def _least(load: Mapping[int, int], taken: Sequence[int], racks: Mapping[int, str | None]) -> int:
    used = {racks.get(each) for each in taken} - {None}
    return min(
        (each for each in load if each not in taken),
        key=lambda each: (racks.get(each) in used, load[each], each),
    )


def _even_out(
    placed: Mapping[TopicPartition, list[int]],
    load: dict[int, int],
    racks: Mapping[int, str | None],
) -> None:
    """Move replicas from the fullest broker to the emptiest until they differ by one at most."""
    while True:
        order = sorted(load, key=lambda each: (load[each], each))
        moved = any(
            load[full] - load[empty] > 1 and _move_one(placed, full, empty, load, racks)
            for full in reversed(order)
            for empty in order
        )
        if not moved:
            return


def _move_one(
    placed: Mapping[TopicPartition, list[int]],
    full: int,
    empty: int,
    load: dict[int, int],
    racks: Mapping[int, str | None],
) -> bool:
    for replicas in placed.values():
        if full not in replicas or empty in replicas:
            continue
        others = {racks.get(each) for each in replicas if each != full} - {None}
        if racks.get(empty) in others and racks.get(full) not in others:
            continue  # the racks would be fewer than they are
        replicas[replicas.index(full)] = empty
        load[full] -= 1
        load[empty] += 1
        return True
    return False


def _spread_leaders(
    placed: Mapping[TopicPartition, list[int]],
    present: Mapping[TopicPartition, Sequence[int]],
) -> None:
    """Balance the preferred leaders of partitions whose replicas change anyway."""
    count: dict[int, int] = {}
    for topic_partition, replicas in placed.items():
        if replicas and list(present[topic_partition]) == replicas:
            count[replicas[0]] = count.get(replicas[0], 0) + 1
    for topic_partition, replicas in placed.items():
        if not replicas or list(present[topic_partition]) == replicas:
            continue
        first = min(replicas, key=lambda each: (count.get(each, 0), replicas.index(each)))
        replicas.remove(first)
        replicas.insert(0, first)
        count[first] = count.get(first, 0) + 1


def bytes_to_receive(
    present: Mapping[TopicPartition, Sequence[int]],
    planned: Mapping[TopicPartition, Sequence[int]],
    sizes: Mapping[TopicPartition, int],
) -> dict[int, int]:
    """Return how much a plan copies to each broker that gets replicas."""
    found: dict[int, int] = {}
    for topic_partition, target in planned.items():
        for broker_id in set(target) - set(present[topic_partition]):
            found[broker_id] = found.get(broker_id, 0) + sizes.get(topic_partition, 0)
    return found


def bytes_to_copy(
    present: Mapping[TopicPartition, Sequence[int]],
    planned: Mapping[TopicPartition, Sequence[int]],
    sizes: Mapping[TopicPartition, int],
) -> int:
    """Return how much a plan copies over the network: a partition's size for each added replica."""
    return sum(bytes_to_receive(present, planned, sizes).values())
