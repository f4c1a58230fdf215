"""The cluster: its brokers, its features, its quorum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from millstream.client.core.admin.outcome import Outcome, Outcomes, done, refusal
from millstream.client.core.admin.routing import Routing
from millstream.client.errors import UnsupportedVersionError
from millstream.client.metadata import Broker
from millstream.client.settings import Address
from millstream.model.offsets import LeaderEpoch, Offset
from millstream.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millstream.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from millstream.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    TopicData,
)
from millstream.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from millstream.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_METADATA_TOPIC = "__cluster_metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """The brokers of the cluster. ``fenced`` are brokers that are registered but not alive."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[Broker, ...]
    fenced: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Versions from the first to the last, both included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """The features that a broker supports, and the finalized ones of the cluster (KIP-584)."""

    supported: Mapping[str, VersionRange]
    finalized: Mapping[str, VersionRange]
    finalized_epoch: int
    apis: Mapping[int, VersionRange]


class UpgradeType(IntEnum):
    """How a feature may change."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """One voter or observer; times are ms since 1970, −1 if the broker does not return it."""

    replica_id: int
    log_end_offset: Offset
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum:
    """The quorum that keeps a KRaft cluster's metadata."""

    leader_id: int
    leader_epoch: LeaderEpoch
    high_watermark: Offset
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


class Cluster(Routing):
    """Operations on the cluster."""

    async def describe_cluster(self, *, include_fenced: bool = False) -> ClusterDescription:
        """Return the cluster's id, its controller and its brokers."""
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False, include_fenced_brokers=include_fenced
        )
        try:
            response = await self.ask_any(request, DescribeClusterResponse)
        except UnsupportedVersionError:
            metadata = await self.metadata()
            return ClusterDescription(
                cluster_id=metadata.cluster_id,
                controller_id=metadata.controller_id,
                brokers=tuple(metadata.brokers.values()),
            )
        _raise(response.error_code, response.error_message, "the cluster")
        return ClusterDescription(
            cluster_id=response.cluster_id,
            controller_id=response.controller_id,
            brokers=tuple(
                Broker(each.broker_id, Address(each.host, each.port), each.rack)
                for each in response.brokers
                if not each.is_fenced
            ),
            fenced=tuple(each.broker_id for each in response.brokers if each.is_fenced),
        )

    async def describe_features(self, broker_id: int | None = None) -> Features:
        """Return the features and the APIs of a broker, or of any."""
        request = ApiVersionsRequest(
            client_software_name="millstream", client_software_version="admin"
        )
        response = (
            await self.ask_any(request, ApiVersionsResponse)
            if broker_id is None
            else await self.ask_broker(broker_id, request, ApiVersionsResponse)
        )
        _raise(response.error_code, None, "features")
        return Features(
            supported={
                each.name: VersionRange(each.min_version, each.max_version)
                for each in response.supported_features
            },
            finalized={
                each.name: VersionRange(each.min_version_level, each.max_version_level)
                for each in response.finalized_features
            },
            finalized_epoch=response.finalized_features_epoch,
            apis={
                each.api_key: VersionRange(each.min_version, each.max_version)
                for each in response.api_keys
            },
        )

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        upgrade_type: UpgradeType = UpgradeType.UPGRADE,
        validate_only: bool = False,
    ) -> Outcomes[str, None]:
        """Change finalized features to these levels; 0 removes one."""

        async def ask(pending: list[str]) -> dict[str, Outcome[None]]:
            request = UpdateFeaturesRequest(
                timeout_ms=self.timeout_ms,
                feature_updates=[
                    FeatureUpdateKey(
                        feature=name, max_version_level=levels[name], upgrade_type=upgrade_type
                    )
                    for name in pending
                ],
                validate_only=validate_only,
            )
            response = await self.ask_controller(request, UpdateFeaturesResponse)
            whole = done(response.error_code, response.error_message, "features")
            found = {
                each.feature: done(each.error_code, each.error_message, f"feature {each.feature}")
                for each in response.results
            }
            # Newer versions have one error for all of them.
            return {name: found.get(name, whole) for name in pending}

        return await self.each(levels, ask)

    async def describe_quorum(self) -> Quorum:
        """Return the metadata quorum of a KRaft cluster."""
        request = DescribeQuorumRequest(
            topics=[
                TopicData(topic_name=_METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])
            ]
        )
        response = await self.ask_any(request, DescribeQuorumResponse)
        _raise(response.error_code, response.error_message, "the quorum")
        row = response.topics[0].partitions[0]
        _raise(row.error_code, row.error_message, "the quorum")
        return Quorum(
            leader_id=row.leader_id,
            leader_epoch=row.leader_epoch,
            high_watermark=row.high_watermark,
            voters=tuple(_replica(each) for each in row.current_voters),
            observers=tuple(_replica(each) for each in row.observers),
        )

    async def unregister_broker(self, broker_id: int) -> None:
        """Unregister a removed broker."""

        async def ask(_: list[int]) -> dict[int, Outcome[None]]:
            request = UnregisterBrokerRequest(broker_id=broker_id)
            response = await self.ask_controller(request, UnregisterBrokerResponse)
            about = f"broker {broker_id}"
            return {broker_id: done(response.error_code, response.error_message, about)}

        (await self.each([broker_id], ask))[broker_id].get()


def _raise(code: int, message: str | None, about: str) -> None:
    error = refusal(code, message, about)
    if error is not None:
        raise error


def _replica(state: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        state.replica_id,
        state.log_end_offset,
        state.last_fetch_timestamp,
        state.last_caught_up_timestamp,
    )
