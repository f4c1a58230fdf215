"""Maps a share partition to its partition of ``__share_group_state``."""

from __future__ import annotations

from millstream.coordinator.group.partitioner import group_partition
from millstream.model.errors import ErrorCode, KafkaError
from millstream.share.state import parse_coordinator_key


def share_coordinator_partition(text: str, partitions: int) -> int:
    """Return the partition of a key of FindCoordinator; INVALID_REQUEST when it is none.

    Kafka: ``SharePartitionKey.validate``, ``ShareCoordinatorService.partitionFor``.
    """
    try:
        parse_coordinator_key(text)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
    return group_partition(text, partitions)
