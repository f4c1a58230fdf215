"""What producers are told of a fenced epoch, by the version of their request."""

from __future__ import annotations

from millstream.model.errors import ErrorCode


def fit_fence(error: ErrorCode, version: int, *, known_from: int) -> ErrorCode:
    """Return INVALID_PRODUCER_EPOCH in place of PRODUCER_FENCED for a version that does not know
    that error yet (KIP-588).
    """
    if error is ErrorCode.PRODUCER_FENCED and version < known_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
