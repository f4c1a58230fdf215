"""Requests that a broker hands on to the controller, with the name of their client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.handlers import update_features
from millstream.handlers.inter_broker import FIND_CONTROLLER_MS, forward
from millstream.handlers.request import ConnectionInfo, RequestContext
from millstream.model.deferred import Deferred, spawn
from millstream.model.entities import EntityKind
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.principal import KafkaPrincipal
from millstream.protocol.api import ApiKey
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from millstream.protocol.messages.metadata import MetadataRequest
from millstream.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from millstream.runtime.services import Services

ANN = KafkaPrincipal("User", "ann", token_authenticated=True)


class Wire:
    """A cluster of which the controller is another broker."""

    listener_name = "PLAINTEXT"

    def __init__(self, controller: AdminBroker) -> None:
        self.controller = controller
        self.channel = self
        self.failures: list[ErrorCode] = []

    def forward(self, request: Request, version: int) -> Deferred[Response]:
        if self.failures:
            failed: Deferred[Response] = Deferred()
            failed.fail(KafkaError(self.failures.pop(0), "lost"))
            return failed
        return self.controller.start(request, version)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[AdminBroker, AdminBroker]]:
    """A broker, and another one that is the controller."""
    made = []
    for name, number in (("one", "1"), ("two", "2")):
        directory = tmp_path / name
        directory.mkdir()
        made.append(AdminBroker(directory, {"node.id": number, "log.dirs": str(directory)}))
    one, two = made
    one.services.cluster = two.services.cluster = cast("Any", Wire(two))
    one.controller_state.end_term()
    yield one, two
    one.close()
    two.close()


def context_of_ann(version: int = 2) -> RequestContext:
    connection = ConnectionInfo(7, "CLIENTS", "10.0.0.9", 5, principal=ANN)
    return RequestContext(connection, int(ApiKey.UPDATE_FEATURES), version, 1, "her-tool")


def request(level: int = 1) -> UpdateFeaturesRequest:
    update = FeatureUpdateKey(
        feature="group.version", max_version_level=level, upgrade_type=1, allow_downgrade=False
    )
    return UpdateFeaturesRequest(timeout_ms=1, feature_updates=[update], validate_only=True)


def test_the_controller_handles_it_as_from_its_client(
    pair: tuple[AdminBroker, AdminBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = pair
    seen: list[RequestContext] = []
    handle = update_features.handle

    async def recording(
        services: Services, context: RequestContext, request: UpdateFeaturesRequest
    ) -> UpdateFeaturesResponse:
        seen.append(context)
        return await handle(services, context, request)

    monkeypatch.setattr(update_features, "handle", recording)
    answer = spawn(
        forward(one.services, context_of_ann(), request(), UpdateFeaturesResponse)
    ).result()
    assert answer.error_code == 0
    (context,) = seen
    assert context.connection.principal == ANN
    assert context.connection.principal.token_authenticated
    assert (context.connection.peer_host, context.connection.listener) == ("10.0.0.9", "CLIENTS")
    assert (context.client_id, context.version) == ("her-tool", 2)


def test_the_controllers_refusal_is_the_answer(pair: tuple[AdminBroker, AdminBroker]) -> None:
    one, _ = pair
    answer = spawn(
        forward(one.services, context_of_ann(), request(99), UpdateFeaturesResponse)
    ).result()
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION.code
    assert "group.version" in (answer.error_message or "")


def test_it_is_sent_again_while_it_surely_was_not_served(
    pair: tuple[AdminBroker, AdminBroker],
) -> None:
    one, _ = pair
    wire = cast("Wire", one.services.cluster)
    wire.failures = [ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.NOT_CONTROLLER]
    answer = spawn(forward(one.services, context_of_ann(), request(), UpdateFeaturesResponse))
    one.clock.advance(1_000)
    assert answer.result().error_code == 0
    wire.failures = [ErrorCode.NETWORK_EXCEPTION]
    unknown = spawn(forward(one.services, context_of_ann(), request(), UpdateFeaturesResponse))
    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        unknown.result()


def test_a_broker_that_becomes_the_controller_meanwhile_answers_itself(
    pair: tuple[AdminBroker, AdminBroker],
) -> None:
    one, two = pair
    two.controller_state.end_term()
    answer = spawn(forward(one.services, context_of_ann(), request(), UpdateFeaturesResponse))
    one.clock.advance(500)
    assert not answer.done
    one.controller_state.begin_term()
    one.clock.advance(500)
    assert answer.result().error_code == 0


def test_without_a_controller_there_is_an_end_to_waiting(
    pair: tuple[AdminBroker, AdminBroker],
) -> None:
    one, two = pair
    two.controller_state.end_term()
    answer = spawn(forward(one.services, context_of_ann(), request(), UpdateFeaturesResponse))
    one.clock.advance(FIND_CONTROLLER_MS + 200)
    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        answer.result()


@pytest.mark.parametrize(
    ("key", "version"), [(ApiKey.METADATA, 12), (ApiKey.ENVELOPE, 0), (ApiKey.UPDATE_FEATURES, 99)]
)
def test_what_is_not_handed_on_is_not_handled(
    pair: tuple[AdminBroker, AdminBroker], key: ApiKey, version: int
) -> None:
    _, two = pair
    envelope = EnvelopeRequest(
        api_key=int(key),
        api_version=version,
        client_id=None,
        listener="CLIENTS",
        client_host="10.0.0.9",
        principal_type="User",
        principal_name="ann",
        token_authenticated=False,
        body=MetadataRequest(topics=None).encode_body(12),
    )
    answer = two.call(envelope, 0, EnvelopeResponse)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION.code


def test_entities_outlive_a_broker_on_its_own(tmp_path: Path) -> None:
    first = AdminBroker(tmp_path)
    change = first.controller.change_entities
    change(EntityKind.USER, lambda _: {"ann": {"x": "1"}, "bob": {"x": "1"}}).result()
    change(EntityKind.USER_CLIENT, lambda _: {"ann/clients/c": {"x": "1"}}).result()
    change(EntityKind.USER, dict.fromkeys).result()
    assert not first.metadata.entities.all(EntityKind.USER)
    first.close()
    again = AdminBroker(tmp_path)
    assert dict(again.metadata.entities.all(EntityKind.USER_CLIENT)) == {
        "ann/clients/c": {"x": "1"}
    }
    again.controller.change_entities(EntityKind.USER, lambda _: {"ann": {"x": "2"}}).result()
    assert dict(again.metadata.entities.all(EntityKind.USER)) == {"ann": {"x": "2"}}
    again.close()
