"""Refusals for want of a right have classes of their own and say where to look."""

from __future__ import annotations

import pytest

from millstream.cli import client_options
from millstream.cli.failures import sentence
from millstream.client.core.consumer.errors import CommitFailedError
from millstream.client.errors import (
    AuthorizationError,
    BrokerError,
    ClusterAuthorizationError,
    GroupAuthorizationError,
    OffsetOutOfRangeError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
    raise_for,
)
from millstream.model.errors import ErrorCode
from millstream.model.topic import TopicPartition

CLASSES = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: TopicAuthorizationError,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: GroupAuthorizationError,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ClusterAuthorizationError,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: TransactionalIdAuthorizationError,
}


@pytest.mark.parametrize(("code", "kind"), CLASSES.items())
def test_classes(code: ErrorCode, kind: type[AuthorizationError]) -> None:
    with pytest.raises(kind, match="topic 'hits'") as caught:
        raise_for(code.code, "topic 'hits'")
    assert caught.value.error is code
    assert "millstream acl check USER OPERATION --" in caught.value.advice


def test_other_codes_stay_what_they_are() -> None:
    assert type(BrokerError(ErrorCode.INVALID_CONFIG, "x")) is BrokerError
    assert not issubclass(BrokerError, AuthorizationError)
    # Errors that are made with other arguments, or none.
    assert CommitFailedError().error is ErrorCode.ILLEGAL_GENERATION
    assert OffsetOutOfRangeError(TopicPartition("t", 0), 5).offset == 5


def test_what_a_command_says(monkeypatch: pytest.MonkeyPatch) -> None:
    error = BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic 'hits'")
    monkeypatch.setattr(client_options._Given, "items", ())
    monkeypatch.delenv("MILLSTREAM_CLIENT_SASL_USERNAME", raising=False)
    assert sentence(error) == (
        "not allowed on this topic: topic 'hits' "
        "(see millstream acl check USER OPERATION --topic NAME)"
    )
    monkeypatch.setattr(client_options._Given, "items", ("sasl.username=ann",))
    assert "acl check User:ann OPERATION --topic NAME" in sentence(error)
