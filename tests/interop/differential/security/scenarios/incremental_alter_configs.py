"""IncrementalAlterConfigs and AlterConfigs of what belongs to security."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.security.session import (
    ALTER_CONFIGS,
    CLUSTER,
    TOPIC,
    SecuredSession,
    rule,
)

BROKER = 4
KINDS = {"user": 7, "client": 9, "ip": 10, "unknown": 0, "any": 1, "three": 3}


def change(kind: int, name: str, key: str, value: str | None, operation: int = 0) -> dict[str, Any]:
    config = {"name": key, "config_operation": operation, "value": value}
    return {"resource_type": kind, "resource_name": name, "configs": [config]}


@scenario(cases=KINDS, versions="IncrementalAlterConfigs")
def quota_of_an_entity(s: SecuredSession, kind: int, version: int) -> None:
    """Quotas are altered by AlterClientQuotas alone."""
    resource = change(kind, "ann", "producer_byte_rate", "1000000000")
    s.call("IncrementalAlterConfigs", version, resources=[resource])
    s.catch_up()
    s.call("DescribeClientQuotas", 1, components=[], strict=False)


@scenario(cases=KINDS)
def quota_of_an_entity_the_old_way(s: SecuredSession, kind: int) -> None:
    config = {"name": "producer_byte_rate", "value": "1000000000"}
    resource = {"resource_type": kind, "resource_name": "ann", "configs": [config]}
    s.call("AlterConfigs", 2, resources=[resource])


READ_ONLY = {
    "super_users": ("super.users", "User:ann"),
    "authorizer": ("authorizer.class.name", ""),
    "everyone": ("allow.everyone.if.no.acl.found", "true"),
    "token_key": ("delegation.token.secret.key", "another"),
    "mechanisms": ("sasl.enabled.mechanisms", "PLAIN"),
    "client_auth": ("ssl.client.auth", "required"),
}


@scenario(cases=READ_ONLY)
def setting_of_the_broker(s: SecuredSession, case: tuple[str, str]) -> None:
    resource = change(BROKER, "1", *case)
    s.call("IncrementalAlterConfigs", 1, resources=[resource], validate_only=True)


@scenario(versions="IncrementalAlterConfigs")
def not_allowed(s: SecuredSession, version: int) -> None:
    topic = s.topic()
    resources = [
        change(TOPIC, topic, "retention.ms", "1000"),
        change(TOPIC, s.name("absent"), "retention.ms", "1000"),
        change(BROKER, "1", "log.retention.ms", "1000"),
        change(BROKER, "", "log.retention.ms", "1000"),
    ]
    s.user().call("IncrementalAlterConfigs", version, resources=resources, validate_only=True)


@scenario
def allowed(s: SecuredSession) -> None:
    topic = s.topic()
    s.allow(rule(ALTER_CONFIGS, TOPIC, topic), rule(ALTER_CONFIGS, CLUSTER, "kafka-cluster"))
    resources = [
        change(TOPIC, topic, "retention.ms", "1000"),
        change(TOPIC, s.name("absent"), "retention.ms", "1000"),
        change(BROKER, "1", "log.retention.ms", "1000000"),
    ]
    s.user().call("IncrementalAlterConfigs", 1, resources=resources, validate_only=True)
