"""Sends what is said of acquired records, and settles it.

A request without an answer, and an error for all of a request, end the share session: the broker
gives up its acquisitions, so acknowledgements of them fail. Acknowledgements of one partition that
are refused for a passing reason are sent again until their deadline; not if the leader has changed,
since the acquisitions have ended with it.

ShareAcknowledge 1 to 2; renewal from 2 on. Kafka: ``ShareConsumeRequestManager``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from millstream.client.core.metadata import LeaderHint, MetadataView
from millstream.client.core.network import Network
from millstream.client.core.share.member import ShareMember
from millstream.client.core.share.node import Carried, Pending, ShareNode, ranges_in
from millstream.client.core.share.session import FINAL_EPOCH, acknowledge_topics
from millstream.client.core.share.settings import ShareConsumerSettings
from millstream.client.core.waiting import backoff_ms
from millstream.client.errors import (
    BrokerError,
    ClientError,
    ClosedError,
    UnsupportedVersionError,
    is_retriable,
)
from millstream.client.metadata import Broker, brokers_in
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.message import Request
from millstream.protocol.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)

_FIRST_WITH_RENEWAL: Final = 2
"""Version of ShareFetch and ShareAcknowledge; ``share.acquire.mode`` came with it."""

LEADER_CHANGED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
PASSES: Final = frozenset(
    {
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
"""Errors that the user does not hear of."""
_NEW_SESSION_AT_ONCE: Final = frozenset(
    {ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH}
)

_log = logging.getLogger("millstream.client.share_consumer")


class ShareAcknowledger:
    """The acknowledgements of one share consumer, and what becomes of its sessions' requests."""

    def __init__(
        self,
        network: Network,
        metadata: MetadataView,
        settings: ShareConsumerSettings,
        member: ShareMember,
    ) -> None:
        self.acquisition_lock_timeout_ms: int | None = None
        """As the brokers told it last."""
        self.on_failure: Callable[[Exception], None] = lambda error: None
        self.on_settled: Callable[[Pending, Exception | None], None] = lambda pending, error: None
        """Called for all acknowledgements, when they were taken or failed."""
        self.is_closed = False
        self._network = network
        self._loop = network.loop
        self._metadata = metadata
        self._settings = settings
        self._member = member

    # --- ShareAcknowledge ------------------------------------------------------------------------

    async def send(self, node: ShareNode) -> None:
        """Send what is queued for a broker."""
        session, number = node.session, node.session.number
        carried = node.take()
        answer = await self._ask(node, carried, session.epoch)
        if answer is None:
            return
        error = ErrorCode.of(answer.error_code)
        if session.number != number:
            self.session_ended(node, carried)
        elif error is ErrorCode.NONE:
            session.on_success()
            node.attempts = 0
            self._take(node, answer, carried)
        else:
            self.refused(node, carried, error, answer.error_message)

    async def send_final(self, node: ShareNode) -> None:
        """Send what is queued, and end the session. What is in flight is answered before it."""
        self.fail_stale(node)
        carried = node.take()
        answer = await self._ask(node, carried, FINAL_EPOCH)
        if answer is None:
            return
        node.session.on_failure()
        error = ErrorCode.of(answer.error_code)
        if error is not ErrorCode.NONE:
            self.fail_each(carried, BrokerError(error, answer.error_message or "closing"))
            return
        for pending in (each for row in carried.values() for each in row):
            # What fails now is not sent again: there is no session to send it in.
            pending.deadline_ms = self._loop.now_ms()
        self._take(node, answer, carried)

    async def _ask(
        self, node: ShareNode, carried: Carried, epoch: int
    ) -> ShareAcknowledgeResponse | None:
        renews = any(each.acknowledged.renews for row in carried.values() for each in row)
        request = ShareAcknowledgeRequest(
            group_id=self._member.group_id,
            member_id=self._member.member_id,
            share_session_epoch=epoch,
            is_renew_ack=renews,
            topics=acknowledge_topics(ranges_in(carried)),
        )
        try:
            if renews:
                await self.need_version(node.node_id, request, "AcknowledgeType.RENEW")
            return await self._network.call(node.node_id, request, ShareAcknowledgeResponse)
        except UnsupportedVersionError as error:
            # Nothing was sent: the session goes on.
            self.fail_each(carried, error)
        except (ClientError, KafkaError) as error:
            self.not_answered(node, carried, error)
        return None

    async def need_version(self, node_id: int, request: Request, what: str) -> None:
        """Raise UnsupportedVersionError for a broker that does not know ``what``."""
        version = await self._network.version_for(node_id, type(request))
        if version < _FIRST_WITH_RENEWAL:
            raise UnsupportedVersionError(f"broker {node_id} does not know {what}")

    def _take(self, node: ShareNode, answer: ShareAcknowledgeResponse, carried: Carried) -> None:
        self.note_lock_timeout(answer.acquisition_lock_timeout_ms)
        endpoints = brokers_in(answer.node_endpoints)
        left = dict(carried)
        for topic in answer.responses:
            for row in topic.partitions:
                code = ErrorCode.of(row.error_code)
                for pending in left.pop((topic.topic_id, row.partition_index), ()):
                    if code in LEADER_CHANGED:
                        leader = row.current_leader
                        hint = LeaderHint(
                            pending.source.topic_partition, leader.leader_id, leader.leader_epoch
                        )
                        self.learn(hint, endpoints)
                    self.answered(node, pending, code, row.error_message)
        self.left_out(node, left)

    # --- answers, also those of a ShareFetch -----------------------------------------------------

    def note_lock_timeout(self, timeout_ms: int) -> None:
        """Remember how long acquisitions last; 0 says nothing."""
        if timeout_ms > 0:
            self.acquisition_lock_timeout_ms = timeout_ms

    def learn(self, hint: LeaderHint, endpoints: list[Broker]) -> None:
        """Take the leader that a refusal names, or ask for it."""
        if hint.leader < 0 or not self._metadata.apply_hints([hint], endpoints):
            self._metadata.request_update()

    def answered(
        self, node: ShareNode, pending: Pending, error: ErrorCode, message: str | None
    ) -> None:
        """Settle acknowledgements of one partition, or queue them again."""
        if error is ErrorCode.NONE:
            self._settle(pending, None)
            return
        now = self._loop.now_ms()
        passes = error.retriable and error not in LEADER_CHANGED
        if passes and now < pending.deadline_ms and not self.is_closed:
            node.queue.append(pending)
            node.retry_at_ms = max(node.retry_at_ms, now + self._backoff(node))
            return
        about = f"acknowledgements of {pending.source.topic_partition}"
        self._settle(pending, BrokerError(error, message or about))

    def left_out(self, node: ShareNode, carried: Carried) -> None:
        """Fail the acknowledgements that an answer does not mention."""
        self.fail_each(
            carried,
            BrokerError(
                ErrorCode.INVALID_RECORD_STATE,
                f"broker {node.node_id} said nothing of these acknowledgements",
            ),
        )

    # --- what goes wrong -------------------------------------------------------------------------

    def not_answered(
        self, node: ShareNode, carried: Carried, error: ClientError | KafkaError
    ) -> None:
        """Handle a missing answer: whether the broker has the request is unknown."""
        node.session.on_failure()
        self.fail_each(carried, error)
        if self.is_closed or isinstance(error, ClosedError):
            return
        _log.debug("share request to broker %d failed: %s", node.node_id, error)
        if not is_retriable(error):
            self.on_failure(error)
        node.retry_at_ms = self._loop.now_ms() + self._backoff(node)
        self._metadata.request_update()

    def refused(
        self, node: ShareNode, carried: Carried, error: ErrorCode, message: str | None
    ) -> None:
        """Handle an error for all of a request."""
        _log.info("share session with broker %d ended: %s", node.node_id, error.name)
        node.session.on_failure()
        failure = BrokerError(error, message or f"the share session with broker {node.node_id}")
        self.fail_each(carried, failure)
        if error is ErrorCode.UNKNOWN_TOPIC_ID:
            self._metadata.request_update()
        elif error not in PASSES and not error.retriable:
            self.on_failure(failure)
        pause_ms = self._backoff(node)
        if error not in _NEW_SESSION_AT_ONCE or node.attempts > 1:
            node.retry_at_ms = self._loop.now_ms() + pause_ms

    def _backoff(self, node: ShareNode) -> float:
        settings = self._settings
        pause_ms = backoff_ms(
            self._loop, node.attempts, settings.retry_backoff_ms, settings.retry_backoff_max_ms
        )
        node.attempts += 1
        return pause_ms

    def fail_stale(self, node: ShareNode) -> None:
        """Fail what is queued of earlier sessions."""
        self.fail_all(node.take_stale(), _session_ended(node))

    def session_ended(self, node: ShareNode, carried: Carried) -> None:
        """Fail what was answered after its session had ended: the answer says nothing of it."""
        self.fail_each(carried, _session_ended(node))

    def fail_each(self, carried: Carried, error: Exception) -> None:
        """Fail what a request carried, as far as it is not settled."""
        for row in carried.values():
            self.fail_all(row, error)

    def fail_all(self, pending: Iterable[Pending], error: Exception) -> None:
        """Fail acknowledgements, as far as they are not settled."""
        for each in list(pending):
            self._settle(each, error)

    def _settle(self, pending: Pending, error: Exception | None) -> None:
        if not pending.done.done:
            # First the callbacks, so that a commit that waits runs them before it returns.
            self.on_settled(pending, error)
            pending.done.complete(error)


def _session_ended(node: ShareNode) -> BrokerError:
    return BrokerError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"the share session with broker {node.node_id} has ended, and with it the "
        "acquisition: the records will be delivered again",
    )
