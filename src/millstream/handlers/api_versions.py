"""ApiVersions (key 18), versions 0 to 4: the first request of every client.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        throttle time
3        flexible; name and version of the client's software; features
4        features whose lowest version is 0
=======  ====================================================================================

An unknown version is answered too, in the layout of version 0 with UNSUPPORTED_VERSION, so
that a client from the future can come down; dispatch calls :func:`unsupported_version` for it. The
response header is version 0 in every version.
"""

from __future__ import annotations

import re

from millstream.handlers.request import RequestContext
from millstream.handlers.routes import ROUTES
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.features import SUPPORTED
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from millstream.runtime.services import Services

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")
_FIRST_VERSION_WITH_SOFTWARE = 3
_FIRST_VERSION_WITH_LEVEL_0 = 4


def handle(
    services: Services, context: RequestContext, request: ApiVersionsRequest
) -> ApiVersionsResponse:
    """Tell the client which APIs and versions are served here."""
    if context.connection.authentication is not None:
        context.connection.authentication.refuse_between_tokens()
    if context.version >= _FIRST_VERSION_WITH_SOFTWARE:
        name, version = request.client_software_name, request.client_software_version
        if not _SOFTWARE.match(name) or not _SOFTWARE.match(version):
            return failed(context, request, KafkaError(ErrorCode.INVALID_REQUEST))
        context.connection.client_software_name = name
        context.connection.client_software_version = version
    if context.connection.authentication is not None:
        context.connection.authentication.versions_told()
    finalized = services.metadata.features
    return ApiVersionsResponse(
        error_code=0,
        api_keys=_advertised(with_telemetry=services.telemetry is not None),
        supported_features=_supported(context.version),
        finalized_features_epoch=finalized.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(finalized.levels.items())
            if level
        ],
    )


def failed(
    context: RequestContext, request: ApiVersionsRequest, error: KafkaError
) -> ApiVersionsResponse:
    """Refuse with the error and no APIs."""
    return ApiVersionsResponse(error_code=error.error.code, api_keys=[])


def unsupported_version() -> ApiVersionsResponse:
    """Answer a version from the future: the range of this API alone (KIP-511)."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION.code,
        api_keys=[row for row in _advertised() if row.api_key == ApiKey.API_VERSIONS],
    )


def _supported(version: int) -> list[SupportedFeatureKey]:
    """Return the features of this broker. Older clients cannot read one whose lowest level is 0
    (KAFKA-17011).
    """
    return [
        SupportedFeatureKey(name=name, min_version=levels.lowest, max_version=levels.highest)
        for name, levels in sorted(SUPPORTED.items())
        if levels.lowest or version >= _FIRST_VERSION_WITH_LEVEL_0
    ]


def _advertised(*, with_telemetry: bool = False) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=key, min_version=route.advertised_from, max_version=route.last_version)
        for key, route in sorted(ROUTES.items())
        if route.is_advertised or with_telemetry
    ]
