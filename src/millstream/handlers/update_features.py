"""UpdateFeatures (key 57), versions 0 to 2 (KIP-584).

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        validate_only; the kind of a downgrade, safe or unsafe (KIP-778)
2        one answer for all features: they change together or not at all (KIP-1022)
=======  ====================================================================================

A level is finalized if every live broker supports it; 0 switches a feature off. Any broker passes
the request on to the controller. Downgrades need to be named as such, and here both kinds do the
same: no feature of ours has a level that loses what another one keeps.
"""

from __future__ import annotations

from millstream.controller.feature_changes import FeatureUpdate, UpgradeType
from millstream.handlers.inter_broker import forward, is_elsewhere
from millstream.handlers.request import RequestContext
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from millstream.runtime.services import Services

_FIRST_VERSION_WITH_TYPES = 1

_SUCCESS = "NONE"
"""What Apache Kafka says of a feature that was changed."""


async def handle(
    services: Services, context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """Finalize levels of features, all or none."""
    if is_elsewhere(services):
        return await forward(services, context, request, UpdateFeaturesResponse)
    names = [each.feature for each in request.feature_updates]
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a feature is named twice")
    await services.controller.features.update(
        [_update(each, context.version) for each in request.feature_updates],
        validate_only=request.validate_only,
    )
    return UpdateFeaturesResponse(
        error_code=ErrorCode.NONE.code,
        error_message=None,
        results=[
            UpdatableFeatureResult(
                feature=name, error_code=ErrorCode.NONE.code, error_message=_SUCCESS
            )
            for name in names
        ],
    )


def failed(
    context: RequestContext, request: UpdateFeaturesRequest, error: KafkaError
) -> UpdateFeaturesResponse:
    """Refuse the request."""
    return UpdateFeaturesResponse(error_code=error.error.code, error_message=error.message)


def _update(update: FeatureUpdateKey, version: int) -> FeatureUpdate:
    upgrade_type = UpgradeType.of(update.upgrade_type)
    if version < _FIRST_VERSION_WITH_TYPES:
        upgrade_type = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    return FeatureUpdate(update.feature, update.max_version_level, upgrade_type)
