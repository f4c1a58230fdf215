"""Carries proposals for ISRs to the controller, many in one request (Kafka:
``DefaultAlterPartitionManager``).

One request is under way. What is proposed meanwhile leaves with the next, so a broker that leads
a thousand partitions asks a few times, not a thousand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from millstream.controller.isr_changes import WantedIsr
from millstream.model.broker import NO_BROKER_EPOCH
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import PartitionState
from millstream.protocol.message import Response
from millstream.protocol.messages.propose_isr import (
    ProposedPartition,
    ProposeIsrRequest,
    ProposeIsrResponse,
)
from millstream.runtime.controlling.replica_control import ReplicaControl
from millstream.runtime.membership.controller_channel import ControllerChannel
from millstream.runtime.metadata.broker_metadata import BrokerMetadata
from millstream.runtime.metadata.metadata_messages import members_message, partition_state
from millstream.runtime.replicas.isr_updates import IsrProposal

TIMEOUT_MS: Final = 5_000
MAX_PROPOSALS: Final = 2_000

Results = list[PartitionState | KafkaError]


@dataclass(slots=True)
class _Waiting:
    proposal: IsrProposal
    outcome: Deferred[PartitionState] = field(default_factory=Deferred)


class IsrProposals:
    """Implements ``isr_updates.IsrProposer``: asks the controller, wherever it is."""

    def __init__(
        self,
        channel: ControllerChannel,
        replicas: ReplicaControl,
        metadata: BrokerMetadata,
        clock: Clock,
    ) -> None:
        """``channel`` reaches the controller on another broker; ``replicas`` decides where this
        broker is the controller.
        """
        self._channel = channel
        self._replicas = replicas
        self._metadata = metadata
        self._clock = clock
        self._waiting: list[_Waiting] = []
        self._under_way = False
        self._scheduled = False

    def propose(self, proposal: IsrProposal) -> Deferred[PartitionState]:
        """Return the state as written; fails with a KafkaError that says what is known of it."""
        waiting = _Waiting(proposal)
        self._waiting.append(waiting)
        if not self._under_way and not self._scheduled:
            self._scheduled = True
            self._clock.call_soon(self._flush)  # others of the same moment come along
        return waiting.outcome

    def _flush(self) -> None:
        self._scheduled = False
        if self._under_way or not self._waiting:
            return
        batch, self._waiting = self._waiting[:MAX_PROPOSALS], self._waiting[MAX_PROPOSALS:]
        epoch = self._metadata.broker_epoch
        controller_id = self._metadata.cache.controller_id
        broker_id = self._metadata.broker_id
        self._under_way = True
        if epoch is None or epoch == NO_BROKER_EPOCH or controller_id < 0:
            code = ErrorCode.OPERATION_NOT_ATTEMPTED
            self._refuse(batch, KafkaError(code, "there is no controller to ask"))
            return
        if controller_id == broker_id:
            wanted = [_wanted(each.proposal) for each in batch]
            self._replicas.propose(broker_id, epoch, wanted).on_done(
                lambda done: self._decided(batch, done)
            )
            return
        request = ProposeIsrRequest(
            broker_id=broker_id,
            broker_epoch=epoch,
            partitions=[_message(each.proposal) for each in batch],
        )
        self._channel.send(request, TIMEOUT_MS).on_done(
            lambda answer: self._answered(batch, answer)
        )

    def _answered(self, batch: list[_Waiting], answer: Deferred[Response]) -> None:
        try:
            response = answer.result()
        except KafkaError as error:
            # A request that never left was not attempted; of any other nobody knows.
            if error.error is ErrorCode.BROKER_NOT_AVAILABLE:
                error = KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED, error.message)
            self._refuse(batch, error)
            return
        assert isinstance(response, ProposeIsrResponse)
        if response.error_code != ErrorCode.NONE.code:
            self._refuse(batch, KafkaError(ErrorCode.of(response.error_code)))
            return
        results: Results = []
        for each in response.partitions:
            if each.state is not None:
                results.append(partition_state(each.state))
            else:
                results.append(KafkaError(ErrorCode.of(each.error_code), each.error_message))
        self._settle(batch, results)

    def _decided(self, batch: list[_Waiting], done: Deferred[Results]) -> None:
        try:
            results = done.result()
        except KafkaError as error:
            self._refuse(batch, error)
        else:
            self._settle(batch, results)

    def _refuse(self, batch: list[_Waiting], error: KafkaError) -> None:
        self._settle(batch, [error] * len(batch))

    def _settle(self, batch: list[_Waiting], results: Results) -> None:
        self._under_way = False
        for waiting, result in zip(batch, results, strict=True):
            if isinstance(result, KafkaError):
                waiting.outcome.fail(result)
            else:
                waiting.outcome.complete(result)
        if self._waiting and not self._scheduled:
            self._scheduled = True
            self._clock.call_soon(self._flush)


def _wanted(proposal: IsrProposal) -> WantedIsr:
    return WantedIsr(
        topic_id=proposal.topic_id,
        index=proposal.topic_partition.partition,
        leader_epoch=proposal.leader_epoch,
        partition_epoch=proposal.partition_epoch,
        isr=proposal.isr,
        recovery_state=proposal.recovery_state,
    )


def _message(proposal: IsrProposal) -> ProposedPartition:
    return ProposedPartition(
        topic_id=proposal.topic_id,
        index=proposal.topic_partition.partition,
        leader_epoch=proposal.leader_epoch,
        partition_epoch=proposal.partition_epoch,
        isr=members_message(proposal.isr),
        leader_recovery_state=proposal.recovery_state.value,
    )
