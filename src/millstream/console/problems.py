"""What went wrong, as the console tells it: what, where, and what to do next."""

from __future__ import annotations

from typing import Final

from millstream.model.errors import ConfigError, ErrorCode, KafkaError, MillstreamError

_ABSENT: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (
        "There is no such topic or partition.",
        "It may have been deleted: look at the list of topics.",
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: (
        "There is no such group.",
        "It may have been deleted, or its offsets have expired.",
    ),
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: (
        "There is no such transactional id.",
        "It may have expired (transactional.id.expiration.ms).",
    ),
}
_IN_USE: Final = frozenset({ErrorCode.NON_EMPTY_GROUP, ErrorCode.UNKNOWN_MEMBER_ID})
_FORBIDDEN: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


class ProblemError(MillstreamError):
    """A request that gets an answer other than 200, and what the page shows of it."""

    def __init__(self, status: int, what: str, where: str, next_step: str) -> None:
        super().__init__(what)
        self.status = status
        self.where = where
        self.next_step = next_step

    def body(self) -> dict[str, object]:
        """The JSON of the answer."""
        return {"error": {"what": str(self), "where": self.where, "next": self.next_step}}


def problem_of(error: MillstreamError | OSError, where: str) -> ProblemError:
    """Put an error of the client into words."""
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, KafkaError):
        if error.error in _ABSENT:
            what, next_step = _ABSENT[error.error]
            return ProblemError(404, what, where, next_step)
        if error.error in _IN_USE:
            return ProblemError(
                409,
                "The group has members.",
                where,
                "Stop them first: offsets can only be reset while the group has no members.",
            )
        if error.error in _FORBIDDEN:
            return ProblemError(
                403,
                f"The user is not allowed to do this: {error}",
                where,
                "Allow it with `millstream acl add`, or ask as another user.",
            )
    if isinstance(error, ConfigError):
        return ProblemError(
            404, f"{error}.", where, "Start the console with another option; --help has them all."
        )
    return ProblemError(
        502,
        str(error) or type(error).__name__,
        where,
        "Is the cluster running? `millstream cluster describe` asks the same brokers.",
    )
