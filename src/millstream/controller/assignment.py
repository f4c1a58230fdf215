"""Which brokers host which partition: assigned round robin, or manually.

Round robin (Kafka: ``AdminUtils.assignReplicasToBrokers``, without racks): the first replica of
partition *p* goes to the broker at ``start_index + p``; the others follow at distances that
grow by one after each round over the brokers, so that the followers of one broker's partitions
spread over all others. Five brokers, start 0, shift 0, three replicas::

    p0: 0 1 2    p1: 1 2 3    p2: 2 3 4    p3: 3 4 0    p4: 4 0 1    p5: 0 2 3    p6: 1 3 4

Where every broker has a rack, the brokers are taken rack by rack in turn (KIP-36), and a replica
goes to the next broker in that order whose rack has none of the partition yet, for as long as
there is such a rack; then to one that holds the fewest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice, zip_longest

from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode, KafkaError

Replicas = tuple[BrokerId, ...]


def assign_replicas(
    brokers: Sequence[BrokerId],
    *,
    partition_count: int,
    replication_factor: int,
    start_index: int,
    shift: int,
    first_partition: int = 0,
    racks: Mapping[BrokerId, str] | None = None,
) -> list[Replicas]:
    """Return the replicas of ``partition_count`` partitions from ``first_partition`` on.

    The caller chooses ``start_index`` and ``shift`` at random for a new topic, and takes them from
    the first partition when partitions are added. With ``racks`` the brokers come in the order of
    :func:`spread_over_racks`.
    """
    count = len(brokers)
    assert 0 < replication_factor <= count
    if count == 1:
        return [(brokers[0],)] * partition_count
    assignment = []
    shift = max(0, shift)
    for partition in range(first_partition, first_partition + partition_count):
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start_index) % count
        others = (
            brokers[(first + 1 + (shift + replica) % (count - 1)) % count]
            for replica in range(count - 1)
        )
        assignment.append(_take(brokers[first], others, replication_factor, racks or {}))
    return assignment


def _take(
    first: BrokerId,
    others: Iterable[BrokerId],
    replication_factor: int,
    racks: Mapping[BrokerId, str],
) -> Replicas:
    """Return ``first`` and as many of ``others`` as are needed, from as many racks as can be."""
    taken = [first]
    if not racks:
        taken += islice(others, replication_factor - 1)
        return tuple(taken)
    waiting = list(others)
    held = Counter([racks[first]])
    while len(taken) < replication_factor:
        # ``min`` returns the first of equals, so the round-robin order is kept.
        chosen = min(waiting, key=lambda each: held[racks[each]])
        waiting.remove(chosen)
        taken.append(chosen)
        held[racks[chosen]] += 1
    return tuple(taken)


def spread_over_racks(
    brokers: Sequence[BrokerId], racks: Mapping[BrokerId, str]
) -> Sequence[BrokerId]:
    """Return the brokers ordered so that neighbours are in different racks: one of each rack in
    turn.
    """
    if not racks:
        return brokers
    by_rack: dict[str, list[BrokerId]] = {}
    for broker_id in sorted(brokers):
        by_rack.setdefault(racks[broker_id], []).append(broker_id)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [each for turn in rounds for each in turn if each is not None]


def check_replication_factor(replication_factor: int, brokers: Collection[BrokerId]) -> None:
    """Raise INVALID_REPLICATION_FACTOR if there are fewer brokers."""
    if replication_factor > len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target "
            f"replication factor of {replication_factor} cannot be reached because only "
            f"{len(brokers)} broker(s) are registered or some brokers have all their log "
            "directories cordoned.",
        )


def check_manual_replicas(
    replicas: Sequence[int], brokers: Collection[BrokerId], replication_factor: int | None
) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT unless the requested replicas of one partition are valid
    (Kafka: ``ReplicationControlManager.validateManualPartitionAssignment``).
    """
    if not replicas:
        raise _refused("The manual partition assignment includes an empty replica list.")
    previous = None
    for broker_id in sorted(replicas):
        if broker_id not in brokers:
            raise _refused(
                f"The manual partition assignment includes broker {broker_id}, but no such "
                "broker is registered."
            )
        if broker_id == previous:
            raise _refused(
                f"The manual partition assignment includes the broker {broker_id} more than once."
            )
        previous = broker_id
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _refused(
            f"The manual partition assignment includes a partition with {len(replicas)} "
            "replica(s), but this is not consistent with previous partitions, which have "
            f"{replication_factor} replica(s)."
        )


def manual_assignment(
    requested: Iterable[tuple[int, Sequence[int]]], brokers: Collection[BrokerId]
) -> list[Replicas]:
    """Return the replicas of a new topic by partition index, checked."""
    by_index: dict[int, Replicas] = {}
    replication_factor = None
    for index, replicas in requested:
        if index in by_index:
            raise _refused(f"Found multiple manual partition assignments for partition {index}")
        check_manual_replicas(replicas, brokers, replication_factor)
        replication_factor = len(replicas)
        by_index[index] = tuple(BrokerId(broker_id) for broker_id in replicas)
    return _in_sequence(by_index)


def _in_sequence(by_index: Mapping[int, Replicas]) -> list[Replicas]:
    if any(index not in by_index for index in range(len(by_index))):
        raise _refused("partitions should be a consecutive 0-based integer sequence")
    return [by_index[index] for index in range(len(by_index))]


def _refused(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
