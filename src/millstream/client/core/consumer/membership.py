"""What a consumer asks of its membership in a group, whichever protocol the group speaks.

``ClassicMembership`` joins by JoinGroup and SyncGroup, and a member assigns the partitions
(``group.protocol`` classic). ``ConsumerMembership`` sends heartbeats only, and the coordinator
assigns (``group.protocol`` consumer, KIP-848). The core, the commits and both APIs know this
protocol alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from millstream.client.core.consumer.record import GroupMetadata
from millstream.client.core.consumer.user_calls import RebalanceListener
from millstream.client.errors import BrokerError
from millstream.model.deferred import Deferred
from millstream.model.topic import TopicPartition


@dataclass(frozen=True, slots=True)
class MemberSite:
    """What a membership needs of its consumer.

    ``attend`` requests a poll of the user, ``fail`` raises an error in it, ``is_polling`` tells
    whether the user waits in one, ``run`` runs a function on the user's side, ``commit`` commits
    the positions of partitions if commits are automatic, and ``assigned`` is called when the
    assigned partitions have changed.
    """

    attend: Callable[[], None]
    fail: Callable[[Exception], None]
    is_polling: Callable[[], bool]
    run: Callable[[Callable[[], object]], Deferred[None]]
    commit: Callable[[Iterable[TopicPartition]], Awaitable[None]]
    assigned: Callable[[], None]


class Membership(Protocol):
    """The membership of one consumer. Everything runs on the client's loop."""

    last_poll_ms: float
    """When the user polled last; written by polls, also on other threads."""

    @property
    def group(self) -> GroupMetadata:
        """The group metadata for transactions: generation −1 while this is not a member."""

    @property
    def can_commit(self) -> bool:
        """True while a commit of this member can be accepted."""

    @property
    def fetches_offsets_as(self) -> GroupMetadata | None:
        """The identity in OffsetFetch; None if the protocol has none, or this is not a member."""

    @property
    def wanted_topics(self) -> frozenset[str]:
        """Topics to keep metadata of."""

    def connect(self, site: MemberSite) -> None:
        """Connect the membership to its consumer; called once, before anything else."""

    def subscribed(self, listener: RebalanceListener | None) -> None:
        """The subscription has changed; ``listener`` is called from now on."""

    def review(self) -> None:
        """The subscription or metadata may have changed: see whether the group must hear of it."""

    def poll(self) -> None:
        """Handle a poll of the user. Raises the error that ended the membership."""

    def enforce_rebalance(self, reason: str) -> None:
        """Rebalance the group, if members can ask for that."""

    def commits_as(self) -> GroupMetadata:
        """Return the identity to commit with.

        Raises RebalanceInProgressError or CommitFailedError while there is none.
        """

    async def after_refused_commit(self, group: GroupMetadata, error: BrokerError) -> None:
        """Handle a commit, as the member ``group``, that the coordinator has refused.

        Returns when the commit may be sent again with the present identity; raises the error for
        the user otherwise.
        """

    async def after_refused_fetch(self, group: GroupMetadata, error: BrokerError) -> None:
        """Handle an OffsetFetch of the member ``group`` that was refused; as for commits."""

    async def release(self) -> None:
        """Call the listener with all partitions: the member is about to leave."""

    async def leave(self, reason: str) -> None:
        """Leave the group. Failures are ignored: the session expires in any case."""

    def unsubscribed(self) -> None:
        """Forget what belonged to the subscription that ends."""

    def close(self) -> None:
        """Stop everything; running operations end at their next wait."""
