"""One member of a share group: ShareGroupHeartbeat, version 1 (KIP-932).

States (Kafka: ``ShareMembershipManager``)::

    OUTSIDE  --subscribe-->                        JOINING   heartbeats of epoch 0
    JOINING  --an answer-->                        STABLE    its epoch, perhaps an assignment
    STABLE   --FENCED_MEMBER_EPOCH,
               UNKNOWN_MEMBER_ID-->                JOINING   the assignment is lost
    STABLE   --no poll for max.poll.interval.ms--> STALE     has left; the next poll joins
    any      --unsubscribe, close-->               OUTSIDE   a heartbeat of epoch −1
    any      --an error that lasts-->              FATAL     every poll raises it

The member makes its id itself. Nothing is revoked together with others: a new assignment is in
force at once. The subscription and the rack are sent on joining, after a failure, and when they
have changed. Kafka: ``ShareHeartbeatRequestManager``.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Final

from millstream.client.core.loop import ClientLoop, TimerHandle
from millstream.client.core.network import CoordinatorType, Network
from millstream.client.core.share.session import SharePartition
from millstream.client.core.share.settings import ShareConsumerSettings
from millstream.client.core.waiting import backoff_ms
from millstream.client.errors import (
    BrokerError,
    ClientError,
    ClosedError,
    UnsupportedVersionError,
    is_retriable,
)
from millstream.model.deferred import spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1

_FIRST_INTERVAL_MS: Final = 5_000
"""Until the coordinator has told its own."""

_COORDINATOR_MOVED: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
)
_FENCED: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})

_log = logging.getLogger("millstream.client.share_consumer")


class ShareMemberState(Enum):
    """The state of a member."""

    OUTSIDE = auto()
    JOINING = auto()
    STABLE = auto()
    STALE = auto()
    FATAL = auto()


_SENDS: Final = frozenset({ShareMemberState.JOINING, ShareMemberState.STABLE})


def new_member_id(loop: ClientLoop) -> str:
    """Return a random id as Kafka writes its: 16 bytes in 22 characters."""
    data = bytes(int(loop.random() * 256) for _ in range(16))
    # A leading dash would look like an option where an id is given to a command.
    return base64.urlsafe_b64encode(bytes([data[0] & 0x7F]) + data[1:]).decode().rstrip("=")


class ShareMember:
    """This consumer's membership. ``on_assigned`` is called after each change of the assignment,
    ``on_failure`` with errors for the user.
    """

    def __init__(self, network: Network, settings: ShareConsumerSettings) -> None:
        assert settings.group_id is not None
        self.group_id = settings.group_id
        self.member_id = new_member_id(network.loop)
        self.member_epoch = JOIN_EPOCH
        self.state = ShareMemberState.OUTSIDE
        self.assigned: frozenset[SharePartition] = frozenset()
        self.topics: frozenset[str] = frozenset()
        self.last_poll_ms = network.loop.now_ms()
        """Written by polls, also on other threads."""
        self.is_polling: Callable[[], bool] = lambda: False
        """Tells whether the user is waiting in a poll."""
        self.on_assigned: Callable[[], None] = lambda: None
        self.on_failure: Callable[[Exception], None] = lambda error: None
        self._network = network
        self._loop = network.loop
        self._settings = settings
        self._interval_ms: float = _FIRST_INTERVAL_MS
        self._timer: TimerHandle | None = None
        self._is_asking = False
        self._beat_again = False
        self._attempts = 0
        self._fences = 0
        """How often the coordinator did not know the member since it last confirmed an epoch."""
        self._sent_topics: frozenset[str] | None = None
        """The subscription that the coordinator has; None: everything has to be sent."""
        self._life = 0
        """Grows when a membership ends: answers to what it has sent are void."""
        self._fatal: Exception | None = None
        self._closed = False

    # --- what the user does ----------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics; join the group unless this is a member already."""
        self.topics = frozenset(topics)
        self.last_poll_ms = self._loop.now_ms()
        if self.state in (ShareMemberState.OUTSIDE, ShareMemberState.STALE):
            self._join()
        elif self.state in _SENDS:
            self._beat_now()

    def poll(self) -> None:
        """Handle a poll: raises the error that ended the membership; a stale member joins again."""
        self.last_poll_ms = self._loop.now_ms()
        if self._fatal is not None:
            raise self._fatal
        if self.state is ShareMemberState.STALE:
            self._join()

    async def leave(self) -> None:
        """Leave the group; returns when the coordinator has answered, or cannot be asked."""
        was_member = self.state in _SENDS and (
            self.member_epoch > JOIN_EPOCH or self._sent_topics is not None
        )
        self.topics = frozenset()
        self._end(ShareMemberState.OUTSIDE)
        if was_member:
            await self._send_leave()

    def close(self) -> None:
        """Stop; no heartbeat follows."""
        self._closed = True
        self._life += 1
        self._stop_timer()

    # --- heartbeats ------------------------------------------------------------------------------

    def _join(self) -> None:
        self._be_joining()
        self._beat_now()

    def _be_joining(self) -> None:
        self.state = ShareMemberState.JOINING
        self.member_epoch = JOIN_EPOCH
        self._sent_topics = None

    def _join_again(self) -> None:
        """Join at once after a fence; after the next ones with a pause."""
        self._be_joining()
        self._fences += 1
        if self._fences == 1:
            self._beat_now()
        else:
            self._plan(self._backoff_ms(self._fences - 2))

    def _beat_now(self) -> None:
        self._stop_timer()
        if self._is_asking:
            self._beat_again = True
        else:
            self._beat()

    def _plan(self, delay_ms: float) -> None:
        self._stop_timer()
        self._timer = self._loop.call_at(self._loop.now_ms() + delay_ms, self._beat)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _beat(self) -> None:
        self._timer = None
        if self._closed or self.state not in _SENDS or self._is_asking:
            return
        now = self._loop.now_ms()
        if self.is_polling():
            self.last_poll_ms = now
        if now - self.last_poll_ms > self._settings.max_poll_interval_ms:
            _log.warning(
                "group %s: left, because the application has not polled for max.poll.interval.ms",
                self.group_id,
            )
            self._end(ShareMemberState.STALE)
            spawn(self._send_leave())
            return
        self._is_asking = True
        spawn(self._ask(self._life))

    async def _ask(self, life: int) -> None:
        topics = self.topics
        request = ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.member_epoch
        )
        if self._sent_topics is None:
            request.rack_id = self._settings.client_rack or None
        if topics != self._sent_topics:
            request.subscribed_topic_names = sorted(topics)
        self._sent_topics = topics
        try:
            answer = await self._send(request)
            self._is_asking = False
            if life == self._life and not self._closed:
                self._on_answer(answer)
        except (ClientError, KafkaError) as error:
            self._is_asking = False
            if life == self._life and not self._closed:
                self._on_error(error)
        if self._beat_again and not self._closed:
            self._beat_again = False
            self._beat_now()

    async def _send(self, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        answer = await self._network.send_to_coordinator(
            self.group_id, CoordinatorType.GROUP, request
        )
        assert isinstance(answer, ShareGroupHeartbeatResponse)
        if answer.error_code:
            error = ErrorCode.of(answer.error_code)
            raise BrokerError(error, answer.error_message or f"share group {self.group_id!r}")
        return answer

    async def _send_leave(self) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=LEAVE_EPOCH
        )
        try:
            await self._send(request)
        except (ClientError, KafkaError) as error:
            # The coordinator forgets the member when its session ends.
            _log.debug("group %s: leaving: %s", self.group_id, error)

    # --- answers ---------------------------------------------------------------------------------

    def _on_answer(self, answer: ShareGroupHeartbeatResponse) -> None:
        if self.state is ShareMemberState.JOINING:
            _log.info("group %s: joined as %s", self.group_id, self.member_id)
        if self.member_epoch > JOIN_EPOCH:
            self._fences = 0
        self.state = ShareMemberState.STABLE
        self._attempts = 0
        self.member_epoch = answer.member_epoch
        self._interval_ms = max(answer.heartbeat_interval_ms, 1)
        if answer.assignment is not None:
            self._assign(_partitions(answer.assignment))
        self._plan(self._interval_ms)

    def _on_error(self, error: ClientError | KafkaError) -> None:
        self._sent_topics = None
        code = error.error if isinstance(error, KafkaError) else None
        if isinstance(error, ClosedError):
            return
        if code in _FENCED:
            _log.info("group %s: fenced (%s), joining again", self.group_id, error)
            self._end(ShareMemberState.OUTSIDE)
            self._join_again()
        elif code is ErrorCode.UNSUPPORTED_VERSION or isinstance(error, UnsupportedVersionError):
            self._fail(
                UnsupportedVersionError(
                    "the brokers do not serve share groups: they need Kafka's protocol of 4.1 or "
                    "later, with share.version=1"
                )
            )
        elif code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self.on_failure(error)
            self._retry()
        elif code in _COORDINATOR_MOVED or is_retriable(error):
            if code in _COORDINATOR_MOVED:
                self._network.forget_coordinator(self.group_id, CoordinatorType.GROUP)
            self._retry()
        else:
            self._fail(error)

    def _retry(self) -> None:
        self._plan(self._backoff_ms(self._attempts))
        self._attempts += 1

    def _backoff_ms(self, attempts: int) -> float:
        settings = self._settings
        return backoff_ms(
            self._loop, attempts, settings.retry_backoff_ms, settings.retry_backoff_max_ms
        )

    def _fail(self, error: Exception) -> None:
        self._fatal = error
        self._end(ShareMemberState.FATAL)
        self.on_failure(error)

    def _end(self, state: ShareMemberState) -> None:
        """Be no member any more: partitions are lost."""
        self._stop_timer()
        self._life += 1
        self._beat_again = False
        self.state = state
        self.member_epoch = JOIN_EPOCH
        self._sent_topics = None
        self._assign(frozenset())

    def _assign(self, assigned: frozenset[SharePartition]) -> None:
        if assigned != self.assigned:
            self.assigned = assigned
            self.on_assigned()


def _partitions(assignment: Assignment) -> frozenset[SharePartition]:
    return frozenset(
        (topic.topic_id, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )
