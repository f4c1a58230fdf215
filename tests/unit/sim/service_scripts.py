"""Scripts about service: every request is answered, an error stays where it belongs, and nothing
that goes wrong costs more the longer it lasts.

They are played as those of ``scripts`` are.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest
from tests.unit.sim.scripts import (
    Script,
    Shape,
    lead_with_second,
    make_controller_and_leader_two,
    replica,
    state,
    whole,
)

from millstream.controller.config_changes import ConfigChange, ResourceType
from millstream.history.checker import Send
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode
from millstream.model.leadership import PartitionState
from millstream.model.topic import TopicPartition
from millstream.protocol.api import ApiKey
from millstream.protocol.message import Response
from millstream.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.runtime.membership.isr_proposals import IsrProposals
from millstream.runtime.replicas.isr_updates import IsrProposal
from millstream.runtime.replicas.readable_bytes import MAX_BATCHES
from millstream.sim.admin_requests import move_log
from millstream.sim.clients import PRODUCE_VERSION, Producer
from millstream.sim.cluster import SimCluster
from millstream.sim.workload import TOPIC
from millstream.storage.log import Log

SIM = TopicPartition(TOPIC, 0)
ANSWER_MS = 20_000.0
"""More than any request takes that is answered at all."""


def produce(
    cluster: SimCluster, leader: int, indexes: Sequence[int], *, acks: int
) -> Deferred[Response]:
    """Send one record to each of several partitions, in one request."""
    client = cluster.work.clients[0]
    data = []
    for index in indexes:
        value = f"script:{index}:{len(cluster.work.history.sends)}"
        cluster.work.history.send(Send((TOPIC, index), value, "script", durable=False, once=False))
        builder = BatchBuilder(BatchOptions())
        builder.append(client.clock.now_ms(), None, value.encode())
        data.append(PartitionProduceData(index=index, records=builder.build()))
    request = ProduceRequest(
        acks=acks, timeout_ms=2_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
    )
    asking = client.ask(
        BrokerId(leader), request, PRODUCE_VERSION, lane="script", timeout_ms=10 * ANSWER_MS
    )
    return spawn(asking)


def leader_of_two(cluster: SimCluster) -> tuple[int, int, int]:
    """Return a broker and two partitions that it leads, both in one log directory."""
    led: dict[int, int] = {}
    for index in range(cluster.work.partition_count):
        leader = state(cluster, index).leader
        if leader not in led:
            led[leader] = index
            continue
        lie_together(cluster, leader, led[leader], index)
        return leader, led[leader], index
    raise AssertionError("nobody leads two partitions")


def lie_together(cluster: SimCluster, number: int, first: int, second: int) -> None:
    """Move a broker's replica of the second partition to the log directory of the first."""
    wanted = replica(cluster, number, index=first).log.log_directory
    move_log(cluster, number, second, wanted)
    assert cluster.until(
        lambda: replica(cluster, number, index=second).log.log_directory == wanted, 10_000
    )


def is_of(path: str, directory: str, index: int) -> bool:
    """Tell whether a file is one of a partition's; it may have been opened before it moved."""
    return path.startswith((f"{directory}/{TOPIC}-{index}/", f"{directory}/{TOPIC}-{index}."))


def a_disk_fails_between_two_writes(cluster: SimCluster) -> list[str]:
    """One request with acks=1 names two partitions in one log directory: the first batch is written
    and waits for its flush, the second meets an I/O error.
    """
    leader, first, second = leader_of_two(cluster)
    directory = replica(cluster, leader, index=first).log.log_directory
    machine = cluster.machines[leader]

    def hook(step: str, path: str) -> None:
        if step == "write" and is_of(path, directory, second):
            machine.go_bad(directory, flushes_alone=False)
            machine.has_failed = True
            raise OSError(errno.EIO, "Input/output error", path)

    for producer in cluster.work.producers:
        producer.held = True
    cluster.go_on(3_000)
    machine.files.hook = hook
    asking = produce(cluster, leader, (first, second), acks=1)
    answered = cluster.until(lambda: asking.done, ANSWER_MS)
    for producer in cluster.work.producers:
        producer.held = False
    cluster.repair_disk(leader)
    return [] if answered else ["a write with acks=1 is never answered"]


def the_store_is_away_while_an_isr_is_proposed(cluster: SimCluster) -> list[str]:
    """Nobody reaches the store. A follower dies, and the controller dies that was asked to take it
    out of the ISR: nobody knows whether it did, and nobody answers any more.
    """
    controller, leader, third = make_controller_and_leader_two(cluster)
    requests, key = cluster.network.requests, (leader, controller, int(ApiKey.PROPOSE_ISR))
    proposed: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        propose = IsrProposals.propose

        def counted(self: IsrProposals, proposal: IsrProposal) -> Deferred[PartitionState]:
            if self is cluster.lives[leader].member.proposals and proposal.topic_partition == SIM:
                proposed.append(cluster.loop.now_ms)
            return propose(self, proposal)

        patch.setattr(IsrProposals, "propose", counted)
        cluster.ensemble.cuts.update((each, "to") for each in cluster.numbers)
        cluster.kill(third, "kill")
        count = requests[key]
        asked = cluster.until(lambda: requests[key] > count, 20_000)
        cluster.kill(controller, "kill the controller")
        cluster.go_on(12_000)
        cluster.ensemble.cuts.clear()
    if not asked:
        return ["nobody proposes another ISR"]
    most = max((sum(at <= each < at + 5_000 for each in proposed) for at in proposed), default=0)
    return [] if most <= 12 else [f"one ISR is proposed {most} times in five seconds"]


def nobody_follows_for_long(cluster: SimCluster) -> list[str]:
    """Below min ISR the high watermark stands still, and a client writes on with acks=1."""
    first, second, third = lead_with_second(cluster)
    for each in (first, third):
        cluster.kill(each, "kill")
    if not cluster.until(lambda: state(cluster).isr == (second,), 30_000):
        return [f"the ISR is {state(cluster).isr}"]
    partition = replica(cluster, second)
    leading, end = partition.leading, partition.log.log_end_offset
    assert leading is not None
    writers = [
        Producer(client, (TOPIC, 0), f"fast{number}", acks=1, once=False, pause_ms=1.0)
        for number, client in enumerate(cluster.work.clients * 6)
    ]
    for each in writers:
        each.start()
    wrote = cluster.until(lambda: partition.log.log_end_offset > end + 2 * MAX_BATCHES, 60_000)
    for each in writers:
        each.held = True
    count = len(leading._readable)
    cluster.go_on(1_000)
    if not wrote:
        return ["nobody can write with acks=1"]
    return [] if count <= MAX_BATCHES else [f"the sizes of {count} batches are remembered"]


def the_controller_is_asked_by_one_who_fails(cluster: SimCluster) -> list[str]:
    """Somebody waits for an event of the controller, and raises when it has ended. The next event
    makes a topic.
    """
    controller = cluster.controller_number()
    assert controller is not None

    def fails(_: object) -> None:
        raise RuntimeError("a listener of an event has failed")

    texts = {"min.insync.replicas": "1"}
    change = ConfigChange(ResourceType.TOPIC, TOPIC, lambda known: {**known, **texts})
    cluster.lives[controller].controller.topics.alter_configs([change]).on_done(fails)
    topic = CreatableTopic(
        name="next", num_partitions=1, replication_factor=3, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=2_000)
    asking = spawn(cluster.work.clients[0].ask(BrokerId(controller), request, lane="script"))
    cluster.until(lambda: asking.done, 5_000)
    made = cluster.until(
        lambda: all(
            each.partitions.replica("next", 0) is not None for each in cluster.lives.values()
        ),
        10_000,
    )
    return [] if made else ["the controller does nothing more"]


def a_follower_fails_at_one_partition(cluster: SimCluster) -> list[str]:
    """What nobody has foreseen is raised once while a follower appends what its leader sent."""
    first, second, third = state(cluster).replicas
    leader = state(cluster).leader
    number = next(each for each in (first, second, third) if each != leader)
    machine, log = cluster.machines[number], replica(cluster, number).log
    failed = []

    def hook(step: str, path: str) -> None:
        if step == "write" and path.startswith(f"{log.directory}/") and path.endswith(".log"):
            machine.files.hook = lambda *_: None
            failed.append(path)
            raise RuntimeError("what nobody has foreseen")

    machine.files.hook = hook
    if not cluster.until(lambda: bool(failed), 20_000):
        return ["nobody writes"]
    end = log.log_end_offset
    followed = cluster.until(lambda: log.log_end_offset > end, 10_000)
    return [] if followed else ["a follower fetches nothing more"]


def an_isr_changes(cluster: SimCluster) -> list[str]:
    """A follower leaves the ISR and comes back: no setting of the topic has changed."""
    leader = state(cluster).leader
    follower = next(each for each in state(cluster).isr if each != leader)
    applied: list[Log] = []
    with pytest.MonkeyPatch.context() as patch:
        update = Log.update_config
        patch.setattr(
            Log, "update_config", lambda log, config: (applied.append(log), update(log, config))
        )
        cluster.kill(follower, "kill")
        if not cluster.until(lambda: follower not in state(cluster).isr, 20_000):
            return ["a killed follower stays in the ISR"]
        cluster.start_broker(follower)
        whole(cluster)
        count = sum(log is replica(cluster, leader).log for log in applied)
    return [f"settings that did not change are applied {count} times"] if count else []


def a_write_fails_beside_a_sound_one(cluster: SimCluster) -> list[str]:
    """One request names two partitions. What nobody has foreseen is raised while the second one is
    appended: the first is acknowledged.
    """
    leader, first, second = leader_of_two(cluster)
    machine = cluster.machines[leader]
    directory = replica(cluster, leader, index=second).log.log_directory

    def hook(step: str, path: str) -> None:
        if step == "write" and is_of(path, directory, second):
            raise ValueError("what nobody has foreseen")

    for producer in cluster.work.producers:
        producer.held = True
    cluster.go_on(3_000)
    machine.files.hook = hook
    asking = produce(cluster, leader, (first, second), acks=1)
    answered = cluster.until(lambda: asking.done, ANSWER_MS)
    machine.files.hook = lambda *_: None
    for producer in cluster.work.producers:
        producer.held = False
    if not answered:
        return ["a write with acks=1 is never answered"]
    response = asking.result()
    assert isinstance(response, ProduceResponse)
    errors = {
        each.index: ErrorCode.of(each.error_code)
        for each in response.responses[0].partition_responses
    }
    if errors[first] is ErrorCode.NONE and errors[second] is not ErrorCode.NONE:
        return []
    return [f"of two writes the second has failed, and they are answered {errors}"]


def segments_are_closed_all_the_time(cluster: SimCluster) -> list[str]:
    """Nothing is flushed but closed segments. What was closed six seconds before a kill need not be
    recovered after it.
    """
    leader = state(cluster).leader
    log, files = replica(cluster, leader).log, cluster.machines[leader].files
    bases = []
    for _ in range(12):
        bases.append(log.segment_base_offsets[-1])
        cluster.go_on(1_000)
    if bases[-7] == bases[0]:
        return ["no segment is closed"]
    cluster.kill(leader, "kill the leader")
    path = f"{log.log_directory}/recovery-point-offset-checkpoint"
    text = bytes(files.contents(path).data).decode()
    points = dict(line.rsplit(" ", 1) for line in text.splitlines()[2:])
    point = int(points.get(f"{TOPIC} 0", 0))
    cluster.start_broker(leader)
    if point >= bases[-7]:
        return []
    return [f"recovery begins at {point}; everything below {bases[-7]} lay in closed segments"]


SCRIPTS: dict[Script, Shape] = {
    a_disk_fails_between_two_writes: Shape(
        partitions=4, directories=2, flush_policy="ack", rebalances=False
    ),
    the_store_is_away_while_an_isr_is_proposed: Shape(),
    nobody_follows_for_long: Shape(rebalances=False),
    the_controller_is_asked_by_one_who_fails: Shape(),
    a_follower_fails_at_one_partition: Shape(),
    an_isr_changes: Shape(rebalances=False),
    segments_are_closed_all_the_time: Shape(segment_bytes=1_000, flush_policy="os"),
    a_write_fails_beside_a_sound_one: Shape(partitions=4, directories=2, rebalances=False),
}
"""Every script, and the cluster that it needs."""
