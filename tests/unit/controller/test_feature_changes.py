"""What may be done to the finalized features of a cluster."""

from __future__ import annotations

import pytest

from millstream.controller import paths, payloads
from millstream.controller.context import ControllerContext, LiveBroker
from millstream.controller.feature_changes import (
    FeatureUpdate,
    UpgradeType,
    change,
    check_supported,
    compatible,
    plan_features,
)
from millstream.controller.loading import load_context
from millstream.model.broker import BrokerId, BrokerNode, Endpoint
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.features import (
    DEFAULT_LEVELS,
    GROUP_VERSION,
    TRANSACTION_VERSION,
    FinalizedFeatures,
    LevelRange,
)
from millstream.model.metadata_store import Create, Node, SetData

UPGRADE, SAFE, UNSAFE = (
    UpgradeType.UPGRADE,
    UpgradeType.SAFE_DOWNGRADE,
    UpgradeType.UNSAFE_DOWNGRADE,
)


def broker(number: int, **features: tuple[int, int]) -> LiveBroker:
    node = BrokerNode(BrokerId(number), (Endpoint("PLAINTEXT", "h", 1),), None, number)
    return LiveBroker(
        node, features={name.replace("_", "."): LevelRange(*r) for name, r in features.items()}
    )


def context(*brokers: LiveBroker, **levels: int) -> ControllerContext:
    made = ControllerContext()
    for each in brokers:
        made.put_broker(each)
    if levels:
        made.features = FinalizedFeatures(
            {name.replace("_", "."): level for name, level in levels.items()}, 4
        )
        made.features_version = 3
    return made


def test_a_cluster_that_has_never_changed_anything_runs_at_the_default_levels() -> None:
    assert context().features == FinalizedFeatures(DEFAULT_LEVELS, 0)


def test_the_first_change_keeps_the_other_levels_and_has_epoch_1() -> None:
    made = context()
    after = plan_features(made, [FeatureUpdate(TRANSACTION_VERSION, 1, SAFE)])
    assert after.levels == {**DEFAULT_LEVELS, TRANSACTION_VERSION: 1}
    assert after.epoch == 1
    assert change(made, after) == Create(paths.FEATURES, payloads.features(after.levels))


def test_each_change_is_a_new_epoch() -> None:
    made = context(transaction_version=1)
    after = plan_features(made, [FeatureUpdate(TRANSACTION_VERSION, 2, UPGRADE)])
    assert (dict(after.levels), after.epoch) == ({TRANSACTION_VERSION: 2}, 5)
    assert change(made, after) == SetData(paths.FEATURES, payloads.features(after.levels), 3)


def test_level_0_switches_a_feature_off() -> None:
    made = context(transaction_version=1, group_version=1)
    after = plan_features(made, [FeatureUpdate(GROUP_VERSION, 0, UNSAFE)])
    assert dict(after.levels) == {TRANSACTION_VERSION: 1}
    assert after.level(GROUP_VERSION) == 0


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        (FeatureUpdate(TRANSACTION_VERSION, 0, UPGRADE), "without setting the upgrade type"),
        (FeatureUpdate(TRANSACTION_VERSION, 2, SAFE), "Can't downgrade to a newer version"),
        (FeatureUpdate(TRANSACTION_VERSION, 3, UPGRADE), "only supports versions 0-2"),
        (FeatureUpdate(TRANSACTION_VERSION, -1, UNSAFE), "cannot be less than 0"),
        (FeatureUpdate("unheard.of", 1, UPGRADE), "does not support this feature"),
        (FeatureUpdate(TRANSACTION_VERSION, 2, UpgradeType.of(7)), "the given upgrade type"),
    ],
)
def test_what_is_refused(update: FeatureUpdate, reason: str) -> None:
    fine = FeatureUpdate(GROUP_VERSION, 1, UPGRADE)
    with pytest.raises(KafkaError, match=reason) as raised:
        plan_features(context(transaction_version=1), [fine, update])
    assert raised.value.error is ErrorCode.INVALID_UPDATE_VERSION


def test_every_broker_has_to_support_a_level() -> None:
    made = context(
        broker(1, transaction_version=(0, 2)),
        broker(2, transaction_version=(0, 1)),
        group_version=1,
    )
    with pytest.raises(KafkaError, match="Broker 2 only supports versions 0-1"):
        plan_features(made, [FeatureUpdate(TRANSACTION_VERSION, 2, UPGRADE)])
    assert plan_features(made, [FeatureUpdate(TRANSACTION_VERSION, 1, UPGRADE)])


def test_a_broker_that_does_not_support_what_is_finalized_is_left_out() -> None:
    able, unable = broker(1, transaction_version=(0, 2)), broker(2, transaction_version=(0, 1))
    silent = broker(3)
    finalized = FinalizedFeatures({TRANSACTION_VERSION: 2}, 1)
    assert compatible([able, unable, silent], finalized) == [able, silent]
    check_supported(finalized)
    with pytest.raises(KafkaError, match="finalized at 3") as raised:
        check_supported(FinalizedFeatures({TRANSACTION_VERSION: 3, "off": 0}, 1))
    assert raised.value.error is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("data", "levels"),
    [
        (
            b'{"version":2,"status":1,"features":{"transaction.version":1}}',
            {TRANSACTION_VERSION: 1},
        ),
        (
            b'{"version":1,"status":1,"features":{"transaction.version":'
            b'{"min_version_level":1,"max_version_level":2}}}',
            {TRANSACTION_VERSION: 2},
        ),
        (b'{"version":2,"status":0,"features":{"transaction.version":1}}', {}),
    ],
)
def test_what_kafka_has_stored_is_read(data: bytes, levels: dict[str, int]) -> None:
    node = Node(data, version=6, creation_id=1, owner=0)
    loaded = load_context({paths.FEATURES: node})
    assert loaded.features == FinalizedFeatures(levels, 7)
    assert loaded.features_version == 6


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"version":2,"status":1,"features":[1]}'])
def test_nonsense_is_refused(data: bytes) -> None:
    with pytest.raises(payloads.PayloadError):
        load_context({paths.FEATURES: Node(data, version=0, creation_id=1, owner=0)})
