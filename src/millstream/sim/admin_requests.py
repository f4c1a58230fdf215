"""What somebody asks of a simulated cluster beside its clients: moves, elections, settings.

The answers do not count: what is asked for happens, or the faults of the moment prevent it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import KafkaError
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from millstream.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from millstream.protocol.messages.elect_leaders import ElectLeadersRequest
from millstream.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from millstream.sim.workload import TOPIC

if TYPE_CHECKING:
    from millstream.sim.cluster import SimCluster


def elect_preferred_leaders(cluster: SimCluster) -> None:
    """Have preferred leaders elected."""
    request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=2_000)
    _ask_controller(cluster, request)


def reassign_some_partition(cluster: SimCluster) -> None:
    """Have a partition moved to other brokers, or its replicas put into another order."""
    chance = cluster.loop.chance
    partition = ReassignablePartition(
        partition_index=chance.randrange(cluster.work.partition_count),
        replicas=chance.sample(cluster.numbers, 3),
    )
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=2_000, topics=[ReassignableTopic(name=TOPIC, partitions=[partition])]
    )
    _ask_controller(cluster, request)


def move_some_log(cluster: SimCluster) -> None:
    """Have some broker move its replica of some partition to one of its log directories."""
    chance = cluster.loop.chance
    index = chance.randrange(cluster.work.partition_count)
    move_log(cluster, cluster.some_broker(), index, chance.choice(cluster.directories))


def move_log(cluster: SimCluster, number: int, index: int, directory: str) -> None:
    """Have a broker move its replica of a partition to a log directory."""
    topic = AlterReplicaLogDirTopic(name=TOPIC, partitions=[index])
    wanted = AlterReplicaLogDir(path=directory, topics=[topic])
    _ask(cluster, number, AlterReplicaLogDirsRequest(dirs=[wanted]))


def change_min_isr(cluster: SimCluster) -> None:
    """Have another ``min.insync.replicas`` put in force. Never 1 where a machine may lose what it
    has written: then one replica alone has what is acknowledged.
    """
    may_lose = cluster.min_isr > 1 and cluster.swarm.loses_data
    chosen = cluster.loop.chance.choice((2, 3) if may_lose else (1, 2, 3))
    cluster.sometimes["min.insync.replicas changed"] += 1
    setting = AlterableConfig(name="min.insync.replicas", config_operation=0, value=str(chosen))
    topic = AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=[setting])
    request = IncrementalAlterConfigsRequest(resources=[topic], validate_only=False)
    _ask_controller(cluster, request)


def _ask_controller(cluster: SimCluster, request: Request) -> None:
    controller = cluster.controller_number()
    if controller is not None:
        _ask(cluster, controller, request)


def _ask(cluster: SimCluster, number: int, request: Request) -> None:
    client = cluster.work.clients[0]
    spawn(client.ask(BrokerId(number), request, lane="admin")).on_done(_ignore_refusal)


def _ignore_refusal(outcome: Deferred[Response]) -> None:
    try:
        outcome.result()
    except KafkaError:
        return
