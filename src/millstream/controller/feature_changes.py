"""What may be done to the finalized features of a cluster (KIP-584, KIP-778, KIP-1022).

A change is all or nothing: the first feature that may not change refuses the whole request with
INVALID_UPDATE_VERSION, and its message says which. Kafka: ``FeatureControlManager``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from millstream.controller import paths, payloads
from millstream.controller.context import NOT_STORED, ControllerContext, LiveBroker
from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.features import SUPPORTED, FinalizedFeatures, LevelRange
from millstream.model.metadata_store import Create, Operation, SetData


class UpgradeType(Enum):
    """What a change may be (Kafka: ``FeatureUpdate.UpgradeType``)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3
    UNKNOWN = 0

    @classmethod
    def of(cls, code: int) -> UpgradeType:
        """Return the type with a number of the protocol."""
        return cls(code) if code in (1, 2, 3) else cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """The level that one feature is to have; 0 switches it off."""

    feature: str
    level: int
    upgrade_type: UpgradeType


def feature_epoch(version: int) -> int:
    """Return the epoch of finalized features whose node has a version; a cluster that has no node
    yet has epoch 0.
    """
    return version + 1


def plan_features(
    context: ControllerContext, updates: Sequence[FeatureUpdate]
) -> FinalizedFeatures:
    """Return what is finalized after all updates. Raises INVALID_UPDATE_VERSION, INVALID_REQUEST
    for a feature that is named twice.
    """
    levels = dict(context.features.levels)
    for update in updates:
        reason = _refusal(context, update)
        if reason is not None:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                "The update failed for all features since the following feature had an error: "
                f"Invalid update version {update.level} for feature {update.feature}. {reason}",
            )
        if update.level:
            levels[update.feature] = update.level
        else:
            levels.pop(update.feature, None)
    return FinalizedFeatures(levels, feature_epoch(context.features_version + 1))


def change(context: ControllerContext, after: FinalizedFeatures) -> Operation:
    """Return the store operation of a change."""
    data = payloads.features(after.levels)
    if context.features_version == NOT_STORED:
        return Create(paths.FEATURES, data)
    return SetData(paths.FEATURES, data, context.features_version)


def unsupported(features: FinalizedFeatures, supported: Mapping[str, LevelRange]) -> str | None:
    """Return why a broker that supports some levels may not be part of a cluster; None if it may.
    Features that are off need no support.
    """
    for name, level in sorted(features.levels.items()):
        reason = _reason(supported, name, level) if level else None
        if reason is not None:
            return f"{name} is finalized at {level}, and the broker {reason}"
    return None


def check_supported(features: FinalizedFeatures) -> None:
    """Raise UNSUPPORTED_VERSION where this broker does not support what is finalized."""
    reason = unsupported(features, SUPPORTED)
    if reason is not None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"this broker cannot join: {reason}")


def compatible(brokers: Iterable[LiveBroker], features: FinalizedFeatures) -> list[LiveBroker]:
    """Return the brokers that support what is finalized. One that says nothing of features is from
    before there were any, and in the middle of a rolling upgrade.
    """
    return [
        broker
        for broker in brokers
        if not broker.features or unsupported(features, broker.features) is None
    ]


def _refusal(context: ControllerContext, update: FeatureUpdate) -> str | None:
    if update.upgrade_type is UpgradeType.UNKNOWN:
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    reason = _reason(SUPPORTED, update.feature, update.level)
    if reason is not None:
        return f"Local controller {reason}."
    for broker_id, broker in sorted(context.brokers.items()):
        reason = _reason(broker.features, update.feature, update.level)
        if reason is not None and update.level:
            return f"Broker {_id(broker_id)} {reason}."
    current = context.features.level(update.feature)
    is_upgrade = update.upgrade_type is UpgradeType.UPGRADE
    if update.level < current and is_upgrade:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    if update.level > current and not is_upgrade:
        return "Can't downgrade to a newer version."
    return None


def _id(broker_id: BrokerId) -> str:
    return str(int(broker_id))


def _reason(supported: Mapping[str, LevelRange], feature: str, level: int) -> str | None:
    levels = supported.get(feature)
    if levels is None:
        return "does not support this feature"
    if not levels.lowest <= level <= levels.highest:
        return f"only supports versions {levels.lowest}-{levels.highest}"
    return None
