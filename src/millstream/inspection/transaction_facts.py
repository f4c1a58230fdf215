"""What a cluster tells of open transactions: the look that :mod:`transaction_health` judges."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from millstream.client.admin import Admin
from millstream.client.core.admin.configs import Resource, ResourceType
from millstream.client.core.admin.offsets import LATEST
from millstream.client.core.admin.producers import ActiveProducer, TransactionDescription
from millstream.client.core.admin.transactions import DEFAULT_MAX_TRANSACTION_TIMEOUT_MS
from millstream.client.errors import ClientError
from millstream.inspection.transaction_health import TransactionsSight
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition

_MAX_TIMEOUT: Final = "transaction.max.timeout.ms"


def look_at_transactions(admin: Admin, topics: Sequence[str] = ()) -> TransactionsSight:
    """Return what the brokers tell of transactions in some topics, or in all of them now.

    KafkaError for a topic that does not exist.
    """
    chosen = list(topics) or admin.list_topics(include_internal=True)
    described = admin.describe_topics(chosen)
    places = [
        partition.topic_partition
        for outcome in described.values()
        if topics or outcome.error is None  # one may be deleted meanwhile
        for partition in outcome.get().partitions
    ]
    untold: dict[str, str] = {}
    ends, stable = _ends(admin, places, untold), _ends(admin, places, untold, read_committed=True)
    # Producers are asked for where they may matter: where something is held back.
    held = [each for each in places if stable.get(each, -1) < ends.get(each, 0)]
    opened = _open_producers(admin, held, untold)
    ids = sorted({each.producer_id for found in opened.values() for each in found})
    transactions, unsure = _transactions(admin, ids, untold)
    return TransactionsSight(
        at_ms=int(time.time() * 1000),
        producers=opened,
        transactions=transactions,
        unsure=unsure,
        ends=ends,
        stable={each: stable[each] for each in held if each in stable},
        max_timeout_ms=_max_timeout_ms(admin),
        untold=untold,
    )


def _ends(
    admin: Admin,
    places: Sequence[TopicPartition],
    untold: dict[str, str],
    *,
    read_committed: bool = False,
) -> dict[TopicPartition, Offset]:
    found: dict[TopicPartition, Offset] = {}
    asked = admin.list_offsets(dict.fromkeys(places, LATEST), read_committed=read_committed)
    for each, outcome in asked.items():
        if outcome.error is None:
            value = outcome.get()
            found[each] = 0 if value is None else value.offset
        elif outcome.error.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            untold[f"offsets of {each}"] = str(outcome.error)
    return found


def _open_producers(
    admin: Admin, places: Sequence[TopicPartition], untold: dict[str, str]
) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
    found: dict[TopicPartition, tuple[ActiveProducer, ...]] = {}
    if not places:
        return found
    try:
        outcomes = admin.describe_producers(places)
    except (KafkaError, ClientError) as error:
        untold["producers of partitions (DescribeProducers)"] = str(error)
        return found
    for each, outcome in outcomes.items():
        if outcome.error is not None:
            untold[f"producers of {each}"] = str(outcome.error)
            continue
        opened = tuple(one for one in outcome.get() if one.transaction_start_offset >= 0)
        if opened:
            found[each] = opened
    return found


def _transactions(
    admin: Admin, producer_ids: Sequence[int], untold: dict[str, str]
) -> tuple[dict[int, TransactionDescription], frozenset[int]]:
    """Return what coordinators know of producers, and the producers that they did not tell of."""
    if not producer_ids:
        return {}, frozenset()
    try:
        listed = admin.list_transactions(producer_ids=producer_ids)
        outcomes = admin.describe_transactions([each.transactional_id for each in listed])
    except (KafkaError, ClientError) as error:
        untold["transactions that coordinators know (ListTransactions)"] = str(error)
        return {}, frozenset(producer_ids)
    ids = {each.transactional_id: each.producer_id for each in listed}
    found: dict[int, TransactionDescription] = {}
    unsure: set[int] = set()
    for name, outcome in outcomes.items():
        if outcome.error is None:
            found[outcome.get().producer_id] = outcome.get()
        elif outcome.error.error is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            untold[f"transactional id {name!r}"] = str(outcome.error)
            unsure.add(ids[name])
    return found, frozenset(unsure)


def _max_timeout_ms(admin: Admin) -> int:
    """Return the largest of the brokers' limits; Apache Kafka's default where none tells it."""
    resources = [
        Resource(ResourceType.BROKER, str(each.broker_id))
        for each in admin.describe_cluster().brokers
    ]
    try:
        outcomes = admin.describe_configs({each: [_MAX_TIMEOUT] for each in resources})
    except (KafkaError, ClientError):
        return DEFAULT_MAX_TRANSACTION_TIMEOUT_MS
    values = [
        int(setting.value)
        for outcome in outcomes.values()
        if outcome.error is None
        for setting in outcome.get()
        if setting.name == _MAX_TIMEOUT and setting.value
    ]
    return max(values, default=DEFAULT_MAX_TRANSACTION_TIMEOUT_MS)
