"""What `millstream cluster reassign` says of a plan that cannot be."""

from __future__ import annotations

import pytest

from millstream.cli.arguments import UsageError
from millstream.cli.cluster_reassign import _plan
from millstream.client.replicas import ClusterView, Replicas
from millstream.model.topic import TopicPartition


def test_too_few_brokers_name_the_option_that_helps() -> None:
    partition = Replicas(
        topic_partition=TopicPartition("t", 0),
        leader=1,
        replicas=(1, 2),
        isr=(1, 2),
        elr=(),
        last_known_elr=(),
        min_insync_replicas=1,
        lag={},
        size_bytes=0,
    )
    view = ClusterView(cluster_id="cluster", controller_id=1, brokers={}, partitions=(partition,))
    with pytest.raises(UsageError, match=r"2 replicas .*; --replication-factor 1 lowers it"):
        _plan(view, None, [1], None)
    with pytest.raises(UsageError, match=r"brokers$"):
        _plan(view, None, [1], 2)
