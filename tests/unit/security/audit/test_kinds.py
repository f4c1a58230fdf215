"""Every API has a kind, and an operation that is asked for may move it."""

from __future__ import annotations

import pytest
from tests.unit.handlers.access_calls import CALLS

from millstream.config.sections.audit import AuditSettings
from millstream.handlers.access_rules import RULES, Open
from millstream.handlers.routes import INTER_BROKER_ROUTES, ROUTES
from millstream.model.acl import AclOperation
from millstream.protocol.api import ApiKey
from millstream.security.audit.kinds import (
    BASE_KINDS,
    CLASSES,
    UNAUDITED,
    EventKind,
    kind_of,
    kinds_of,
)


def test_every_api_is_audited_or_says_that_it_is_not() -> None:
    served = {route.key for route in (*ROUTES.values(), *INTER_BROKER_ROUTES.values())}
    assert served - BASE_KINDS.keys() == UNAUDITED
    assert not UNAUDITED & BASE_KINDS.keys()
    open_ = {key for key, rule in RULES.items() if isinstance(rule, Open)}
    assert open_ | {ApiKey.WRITE_AUDIT_LOG} == UNAUDITED


def test_every_class_has_a_setting() -> None:
    named = {f"audit.log.{kind.value}.{outcome.value}" for kind, outcome in CLASSES}
    assert named <= AuditSettings.keys.keys()
    with_words = {
        name for name, key in AuditSettings.keys.items() if "`file`" in str(key.validator)
    }
    assert named == with_words


@pytest.mark.parametrize(
    ("key", "operation", "kind"),
    [
        (ApiKey.PRODUCE, AclOperation.WRITE, EventKind.PRODUCE),
        (ApiKey.FETCH, AclOperation.READ, EventKind.CONSUME),
        (ApiKey.FETCH, AclOperation.CLUSTER_ACTION, EventKind.INTERBROKER),
        (ApiKey.METADATA, AclOperation.DESCRIBE, EventKind.DESCRIBE),
        (ApiKey.METADATA, AclOperation.CREATE, EventKind.MANAGEMENT),
        (ApiKey.CREATE_TOPICS, AclOperation.DESCRIBE_CONFIGS, EventKind.DESCRIBE),
        (ApiKey.DELETE_TOPICS, AclOperation.DELETE, EventKind.MANAGEMENT),
        (ApiKey.OFFSET_DELETE, AclOperation.READ, EventKind.MANAGEMENT),
        (ApiKey.WRITE_TXN_MARKERS, AclOperation.ALTER, EventKind.MANAGEMENT),
        (ApiKey.PUSH_METADATA, AclOperation.CLUSTER_ACTION, EventKind.INTERBROKER),
    ],
)
def test_the_kind_follows_from_api_and_operation(
    key: ApiKey, operation: AclOperation, kind: EventKind
) -> None:
    assert kind_of(key, operation) is kind


def test_what_an_api_asks_for_is_among_its_kinds() -> None:
    for call in CALLS:
        for need in call.needs:
            assert kind_of(call.key, need.operation) in kinds_of(call.key)
    assert kinds_of(ApiKey.PRODUCE) <= {EventKind.PRODUCE, EventKind.INTERBROKER}
