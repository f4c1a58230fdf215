"""UpdateFeatures, and what ApiVersions says of features."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.controller import paths
from millstream.model.errors import ErrorCode
from millstream.model.features import DEFAULT_LEVELS, TRANSACTION_VERSION
from millstream.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millstream.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    broker = AdminBroker(tmp_path)
    yield broker
    broker.close()


def versions(broker: AdminBroker, version: int = 4) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    return broker.call(request, version, ApiVersionsResponse)


def finalized(broker: AdminBroker, version: int = 4) -> tuple[int, dict[str, int]]:
    answer = versions(broker, version)
    assert all(
        each.min_version_level == each.max_version_level for each in answer.finalized_features
    )
    return answer.finalized_features_epoch, {
        each.name: each.max_version_level for each in answer.finalized_features
    }


def update(
    broker: AdminBroker,
    level: int,
    version: int = 2,
    name: str = TRANSACTION_VERSION,
    **more: object,
) -> UpdateFeaturesResponse:
    only_validated = bool(more.pop("validate_only", False))
    key = FeatureUpdateKey(feature=name, max_version_level=level, **more)
    return broker.call(
        UpdateFeaturesRequest(feature_updates=[key], validate_only=only_validated),
        version,
        UpdateFeaturesResponse,
    )


def test_features_are_told_from_version_3_on(broker: AdminBroker) -> None:
    assert finalized(broker) == (0, dict(DEFAULT_LEVELS))
    assert finalized(broker, 3) == (0, dict(DEFAULT_LEVELS))
    assert finalized(broker, 2) == (-1, {})
    supported = {
        f.name: (f.min_version, f.max_version) for f in versions(broker).supported_features
    }
    assert supported[TRANSACTION_VERSION] == (0, 2)
    assert versions(broker, 3).supported_features == []


def test_a_downgrade_has_to_be_named(broker: AdminBroker) -> None:
    refused = update(broker, 1)
    assert ErrorCode.of(refused.error_code) is ErrorCode.INVALID_UPDATE_VERSION
    assert "without setting the upgrade type" in (refused.error_message or "")
    assert update(broker, 1, upgrade_type=2).error_code == 0
    assert finalized(broker) == (1, {**DEFAULT_LEVELS, TRANSACTION_VERSION: 1})
    assert update(broker, 0, upgrade_type=3).error_code == 0
    assert TRANSACTION_VERSION not in finalized(broker)[1]
    assert update(broker, 2).error_code == 0
    assert finalized(broker) == (3, dict(DEFAULT_LEVELS))


def test_version_0_allows_downgrades_by_a_flag(broker: AdminBroker) -> None:
    answer = update(broker, 1, 0, allow_downgrade=True)
    assert [(r.feature, r.error_code) for r in answer.results] == [(TRANSACTION_VERSION, 0)]
    refused = update(broker, 0, 0)
    assert ErrorCode.of(refused.error_code) is ErrorCode.INVALID_UPDATE_VERSION


def test_from_version_1_on_the_kind_of_update_counts(broker: AdminBroker) -> None:
    assert update(broker, 1, 1, upgrade_type=2).error_code == 0
    assert finalized(broker)[1][TRANSACTION_VERSION] == 1


def test_what_is_only_validated_changes_nothing(broker: AdminBroker) -> None:
    assert update(broker, 1, upgrade_type=2, validate_only=True).error_code == 0
    wrong = update(broker, 7, validate_only=True)
    assert ErrorCode.of(wrong.error_code) is ErrorCode.INVALID_UPDATE_VERSION
    assert finalized(broker) == (0, dict(DEFAULT_LEVELS))


def test_a_level_that_is_in_force_is_no_change(broker: AdminBroker) -> None:
    assert update(broker, 2).error_code == 0
    assert finalized(broker) == (0, dict(DEFAULT_LEVELS))


def test_a_feature_is_named_once(broker: AdminBroker) -> None:
    key = FeatureUpdateKey(feature=TRANSACTION_VERSION, max_version_level=1, upgrade_type=2)
    answer = broker.call(
        UpdateFeaturesRequest(feature_updates=[key, key]), 2, UpdateFeaturesResponse
    )
    assert ErrorCode.of(answer.error_code) is ErrorCode.INVALID_REQUEST


def test_they_are_stored_as_kafka_does(broker: AdminBroker) -> None:
    update(broker, 1, upgrade_type=2)
    node = broker.store.get(paths.FEATURES).result()
    assert node.data == (
        b'{"version":2,"status":1,"features":'
        b'{"group.version":1,"share.version":1,"transaction.version":1}}'
    )
