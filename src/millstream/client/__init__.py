"""A client of any Kafka-protocol broker: producer, consumer and admin.

``Producer``, ``Consumer`` and ``Admin`` here are for programs with threads; `millstream.client.aio`
has the same for asyncio. Both drive one core (`core/`), which is independent of sockets, clocks and
threads. Names are imported at first use.

Every error is a ``MillstreamError``: a ``ClientError``, or a ``BrokerError`` with the code that a
broker has answered.

`cluster.Cluster` with its `fetch.Fetcher` is used by Spark's executors for reading, and for nothing
else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.client.lazy import names_of

if TYPE_CHECKING:
    from millstream.client.admin import Admin as Admin
    from millstream.client.consumer import Consumer as Consumer
    from millstream.client.core.admin.access import QuotaEntity as QuotaEntity
    from millstream.client.core.admin.access import ScramCredential as ScramCredential
    from millstream.client.core.admin.access import ScramMechanism as ScramMechanism
    from millstream.client.core.admin.cluster import ClusterDescription as ClusterDescription
    from millstream.client.core.admin.cluster import Features as Features
    from millstream.client.core.admin.cluster import UpgradeType as UpgradeType
    from millstream.client.core.admin.configs import Change as Change
    from millstream.client.core.admin.configs import Operation as Operation
    from millstream.client.core.admin.configs import Resource as Resource
    from millstream.client.core.admin.configs import ResourceType as ResourceType
    from millstream.client.core.admin.configs import Setting as Setting
    from millstream.client.core.admin.configs import Source as Source
    from millstream.client.core.admin.group_descriptions import GroupDescription as GroupDescription
    from millstream.client.core.admin.group_descriptions import GroupMember as GroupMember
    from millstream.client.core.admin.groups import Committed as Committed
    from millstream.client.core.admin.groups import ListedGroup as ListedGroup
    from millstream.client.core.admin.offsets import EARLIEST as EARLIEST
    from millstream.client.core.admin.offsets import LATEST as LATEST
    from millstream.client.core.admin.offsets import MAX_TIMESTAMP as MAX_TIMESTAMP
    from millstream.client.core.admin.offsets import FoundOffset as FoundOffset
    from millstream.client.core.admin.outcome import Outcome as Outcome
    from millstream.client.core.admin.outcome import Outcomes as Outcomes
    from millstream.client.core.admin.replicas import ElectionType as ElectionType
    from millstream.client.core.admin.replicas import Reassignment as Reassignment
    from millstream.client.core.admin.topics import TO_HIGH_WATERMARK as TO_HIGH_WATERMARK
    from millstream.client.core.admin.topics import CreatedTopic as CreatedTopic
    from millstream.client.core.admin.topics import NewTopic as NewTopic
    from millstream.client.core.consumer.errors import CommitFailedError as CommitFailedError
    from millstream.client.core.consumer.errors import ConcurrentUseError as ConcurrentUseError
    from millstream.client.core.consumer.errors import CorruptRecordError as CorruptRecordError
    from millstream.client.core.consumer.errors import (
        FencedInstanceIdError as FencedInstanceIdError,
    )
    from millstream.client.core.consumer.errors import LogTruncationError as LogTruncationError
    from millstream.client.core.consumer.errors import NoOffsetError as NoOffsetError
    from millstream.client.core.consumer.errors import (
        OffsetsOutOfRangeError as OffsetsOutOfRangeError,
    )
    from millstream.client.core.consumer.errors import (
        RebalanceInProgressError as RebalanceInProgressError,
    )
    from millstream.client.core.consumer.errors import (
        RecordDeserializationError as RecordDeserializationError,
    )
    from millstream.client.core.consumer.errors import RecordError as RecordError
    from millstream.client.core.consumer.errors import RetriableCommitError as RetriableCommitError
    from millstream.client.core.consumer.errors import WakeupError as WakeupError
    from millstream.client.core.consumer.record import TimestampType as TimestampType
    from millstream.client.core.consumer.user_calls import RebalanceListener as RebalanceListener
    from millstream.client.core.producer.encoded import RowsMetadata as RowsMetadata
    from millstream.client.core.producer.transactions import (
        PreparedTransaction as PreparedTransaction,
    )
    from millstream.client.core.share.errors import AcknowledgeFailedError as AcknowledgeFailedError
    from millstream.client.core.share.errors import NotAcquiredError as NotAcquiredError
    from millstream.client.core.share.errors import NotSubscribedError as NotSubscribedError
    from millstream.client.core.share.errors import UnacknowledgedError as UnacknowledgedError
    from millstream.client.core.values import AcknowledgeType as AcknowledgeType
    from millstream.client.core.values import ConsumerRecord as ConsumerRecord
    from millstream.client.core.values import GroupMetadata as GroupMetadata
    from millstream.client.core.values import OffsetAndMetadata as OffsetAndMetadata
    from millstream.client.core.values import OffsetAndTimestamp as OffsetAndTimestamp
    from millstream.client.core.values import RecordMetadata as RecordMetadata
    from millstream.client.core.values import ShareRecord as ShareRecord
    from millstream.client.core.values import SubscriptionPattern as SubscriptionPattern
    from millstream.client.core.values import TopicPartition as TopicPartition
    from millstream.client.errors import AbortableTransactionError as AbortableTransactionError
    from millstream.client.errors import AuthenticationError as AuthenticationError
    from millstream.client.errors import AuthorizationError as AuthorizationError
    from millstream.client.errors import BrokerError as BrokerError
    from millstream.client.errors import BufferFullError as BufferFullError
    from millstream.client.errors import ClientError as ClientError
    from millstream.client.errors import ClosedError as ClosedError
    from millstream.client.errors import ClusterAuthorizationError as ClusterAuthorizationError
    from millstream.client.errors import ConnectionFailedError as ConnectionFailedError
    from millstream.client.errors import FatalTransactionError as FatalTransactionError
    from millstream.client.errors import ForkedError as ForkedError
    from millstream.client.errors import GroupAuthorizationError as GroupAuthorizationError
    from millstream.client.errors import OffsetOutOfRangeError as OffsetOutOfRangeError
    from millstream.client.errors import ProducerFencedError as ProducerFencedError
    from millstream.client.errors import RecordTooLargeError as RecordTooLargeError
    from millstream.client.errors import RequestValueError as RequestValueError
    from millstream.client.errors import SerializationError as SerializationError
    from millstream.client.errors import TimedOutError as TimedOutError
    from millstream.client.errors import TlsError as TlsError
    from millstream.client.errors import TopicAuthorizationError as TopicAuthorizationError
    from millstream.client.errors import TopicRecreatedError as TopicRecreatedError
    from millstream.client.errors import TransactionAbortedError as TransactionAbortedError
    from millstream.client.errors import (
        TransactionalIdAuthorizationError as TransactionalIdAuthorizationError,
    )
    from millstream.client.errors import TransactionError as TransactionError
    from millstream.client.errors import TransactionStateError as TransactionStateError
    from millstream.client.errors import UnsupportedVersionError as UnsupportedVersionError
    from millstream.client.errors import WaitInCallbackError as WaitInCallbackError
    from millstream.client.errors import is_retriable as is_retriable
    from millstream.client.metadata import Partition as Partition
    from millstream.client.producer import Producer as Producer
    from millstream.client.producer_futures import RecordFuture as RecordFuture
    from millstream.client.producer_futures import RowsFuture as RowsFuture
    from millstream.client.share_consumer import ShareConsumer as ShareConsumer
    from millstream.model.errors import ConfigError as ConfigError
    from millstream.model.errors import ErrorCode as ErrorCode
    from millstream.model.errors import KafkaError as KafkaError
    from millstream.model.errors import MillstreamError as MillstreamError
    from millstream.records.compression import Codec as Codec

__getattr__ = names_of(
    __name__,
    {
        "Admin": "admin",
        "Consumer": "consumer",
        "Producer": "producer",
        "RecordFuture": "producer_futures",
        "RowsFuture": "producer_futures",
        "ShareConsumer": "share_consumer",
        "QuotaEntity": "core.admin.access",
        "ScramCredential": "core.admin.access",
        "ScramMechanism": "core.admin.access",
        "ClusterDescription": "core.admin.cluster",
        "Features": "core.admin.cluster",
        "UpgradeType": "core.admin.cluster",
        "Change": "core.admin.configs",
        "Operation": "core.admin.configs",
        "Resource": "core.admin.configs",
        "ResourceType": "core.admin.configs",
        "Setting": "core.admin.configs",
        "Source": "core.admin.configs",
        "GroupDescription": "core.admin.group_descriptions",
        "GroupMember": "core.admin.group_descriptions",
        "Committed": "core.admin.groups",
        "ListedGroup": "core.admin.groups",
        "EARLIEST": "core.admin.offsets",
        "FoundOffset": "core.admin.offsets",
        "LATEST": "core.admin.offsets",
        "MAX_TIMESTAMP": "core.admin.offsets",
        "Outcome": "core.admin.outcome",
        "Outcomes": "core.admin.outcome",
        "ElectionType": "core.admin.replicas",
        "Reassignment": "core.admin.replicas",
        "CreatedTopic": "core.admin.topics",
        "NewTopic": "core.admin.topics",
        "TO_HIGH_WATERMARK": "core.admin.topics",
        "CommitFailedError": "core.consumer.errors",
        "NoOffsetError": "core.consumer.errors",
        "RebalanceInProgressError": "core.consumer.errors",
        "RecordError": "core.consumer.errors",
        "AbortableTransactionError": "errors",
        "AuthenticationError": "errors",
        "AuthorizationError": "errors",
        "BrokerError": "errors",
        "BufferFullError": "errors",
        "ClientError": "errors",
        "ClosedError": "errors",
        "ClusterAuthorizationError": "errors",
        "ConnectionFailedError": "errors",
        "FatalTransactionError": "errors",
        "ForkedError": "errors",
        "GroupAuthorizationError": "errors",
        "OffsetOutOfRangeError": "errors",
        "ProducerFencedError": "errors",
        "RecordTooLargeError": "errors",
        "RequestValueError": "errors",
        "SerializationError": "errors",
        "TimedOutError": "errors",
        "TlsError": "errors",
        "TopicAuthorizationError": "errors",
        "TopicRecreatedError": "errors",
        "TransactionAbortedError": "errors",
        "TransactionError": "errors",
        "TransactionStateError": "errors",
        "TransactionalIdAuthorizationError": "errors",
        "UnsupportedVersionError": "errors",
        "WaitInCallbackError": "errors",
        "is_retriable": "errors",
        "RecordDeserializationError": "core.consumer.errors",
        "CorruptRecordError": "core.consumer.errors",
        "OffsetsOutOfRangeError": "core.consumer.errors",
        "LogTruncationError": "core.consumer.errors",
        "RetriableCommitError": "core.consumer.errors",
        "FencedInstanceIdError": "core.consumer.errors",
        "WakeupError": "core.consumer.errors",
        "ConcurrentUseError": "core.consumer.errors",
        "NotAcquiredError": "core.share.errors",
        "UnacknowledgedError": "core.share.errors",
        "NotSubscribedError": "core.share.errors",
        "AcknowledgeFailedError": "core.share.errors",
        "ConfigError": "core.settings",
        "Codec": "core.settings",
        "Partition": "metadata",
        "PreparedTransaction": "core.producer.transactions",
        "RebalanceListener": "core.consumer.user_calls",
        "RowsMetadata": "core.producer.encoded",
        "TimestampType": "core.consumer.record",
        "ErrorCode": "errors",
        "KafkaError": "errors",
        "MillstreamError": "errors",
    },
)
