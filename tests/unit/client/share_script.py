"""A share group of one member at a scripted broker, over real sockets."""

from __future__ import annotations

import threading
import time

from tests.unit.client.scripted_broker import TOPIC_ID, ScriptedBroker

from millstream.protocol.message import Request, Response
from millstream.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millstream.protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch as AcknowledgeLeader,
)
from millstream.protocol.messages.share_acknowledge import (
    PartitionData as AcknowledgeRow,
)
from millstream.protocol.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from millstream.protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from millstream.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

LOCK_MS = 30_000
IDLE_S = 0.02


class ShareScript:
    """Acquires everything that is free, and remembers what was said of it."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.lock = threading.Lock()
        self.acquired: set[int] = set()
        self.types: dict[int, int] = {}
        """The last type of each offset that is done with: accepted or rejected."""
        self.closed = 0
        self.left = 0
        self.refuse_with = 0
        """An error code for acknowledgements."""
        broker.intercept.append(self._serve)

    def _serve(self, request: Request) -> Response | None:
        with self.lock:
            if isinstance(request, FindCoordinatorRequest):
                return self._coordinator(request)
            if isinstance(request, ShareGroupHeartbeatRequest):
                return self._heartbeat(request)
            if isinstance(request, ShareAcknowledgeRequest):
                return self._acknowledge(request)
            if isinstance(request, ShareFetchRequest):
                answer = self._fetch(request)
        if isinstance(request, ShareFetchRequest):
            if not answer.responses[0].partitions[0].acquired_records:
                time.sleep(IDLE_S)
            return answer
        return None

    def _coordinator(self, request: FindCoordinatorRequest) -> Response:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(
                    key=key,
                    node_id=1,
                    host="127.0.0.1",
                    port=self.broker.port,
                    error_code=0,
                    error_message=None,
                )
                for key in request.coordinator_keys
            ]
        )

    def _heartbeat(self, request: ShareGroupHeartbeatRequest) -> Response:
        self.left += request.member_epoch == -1
        return ShareGroupHeartbeatResponse(
            error_code=0,
            member_epoch=max(request.member_epoch, 1),
            heartbeat_interval_ms=1_000,
            assignment=Assignment(
                topic_partitions=[TopicPartitions(topic_id=TOPIC_ID, partitions=[0])]
            ),
        )

    def _fetch(self, request: ShareFetchRequest) -> ShareFetchResponse:
        for topic in request.topics:
            for row in topic.partitions:
                for batch in row.acknowledgement_batches:
                    self._note(batch.first_offset, batch.last_offset, batch.acknowledge_types)
        offsets = [
            offset
            for offset in range(self.broker.end_offset)
            if offset not in self.acquired and offset not in self.types
        ]
        self.acquired |= set(offsets)
        row = PartitionData(
            partition_index=0,
            error_code=0,
            acknowledge_error_code=self.refuse_with,
            current_leader=LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
            records=b"".join(self.broker.batches) if offsets else b"",
            acquired_records=[
                AcquiredRecords(first_offset=each, last_offset=each, delivery_count=1)
                for each in offsets
            ],
        )
        return ShareFetchResponse(
            error_code=0,
            acquisition_lock_timeout_ms=LOCK_MS,
            responses=[ShareFetchableTopicResponse(topic_id=TOPIC_ID, partitions=[row])],
            node_endpoints=[],
        )

    def _acknowledge(self, request: ShareAcknowledgeRequest) -> Response:
        rows = []
        for topic in request.topics:
            for row in topic.partitions:
                for batch in row.acknowledgement_batches:
                    self._note(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                rows.append(
                    AcknowledgeRow(
                        partition_index=row.partition_index,
                        error_code=self.refuse_with,
                        current_leader=AcknowledgeLeader(leader_id=-1, leader_epoch=-1),
                    )
                )
        if request.share_session_epoch == -1:
            self.closed += 1
            self.acquired.clear()
        return ShareAcknowledgeResponse(
            error_code=0,
            responses=[ShareAcknowledgeTopicResponse(topic_id=TOPIC_ID, partitions=rows)],
            node_endpoints=[],
        )

    def _note(self, first: int, last: int, types: list[int]) -> None:
        if self.refuse_with:
            return
        for index, offset in enumerate(range(first, last + 1)):
            kind = types[0] if len(types) == 1 else types[index]
            self.acquired.discard(offset)
            if kind != 2:
                self.types[offset] = kind
