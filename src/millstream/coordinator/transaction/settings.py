"""What the transaction coordinator is told by the broker."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol

from millstream.model.broker import BrokerId

_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Settings, in Kafka's words: ``transaction.max.timeout.ms``,
    ``transactional.id.expiration.ms``. ``max_record_bytes`` bounds key and value of a transaction's
    record, and with it the partitions that a transaction can have; ``marker_timeout_ms`` is how
    long an answer to WriteTxnMarkers is waited for.
    """

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 7 * _DAY_MS
    max_record_bytes: int = 1_000_000
    marker_timeout_ms: int = 30_000


class ClusterView(Protocol):
    """What the coordinator reads of the cluster's metadata, as it is at that moment."""

    @property
    def broker_id(self) -> BrokerId | None:
        """This broker, whose partitions need no request; None has every leader asked by one."""

    @property
    def transaction_version(self) -> int:
        """The level of the feature ``transaction.version``."""

    def leaders_of(self, topic: str, indexes: Collection[int]) -> dict[BrokerId | None, set[int]]:
        """Return partitions of a topic by who leads them: ``NO_LEADER`` if nobody does just now or
        the broker is not alive, None for those that do not exist.
        """
