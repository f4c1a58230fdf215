"""DescribeConfigs: what is told of secrets."""

from __future__ import annotations

from tests.interop.differential.scenario import scenario
from tests.interop.differential.security.session import (
    ALTER_CONFIGS,
    CLUSTER,
    DESCRIBE_CONFIGS,
    SecuredSession,
    rule,
)

BROKER = 4
SECRETS = [
    "sasl.jaas.config",
    "ssl.keystore.password",
    "ssl.truststore.password",
    "ssl.key.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.certificates",
    "ssl.keystore.type",
    "ssl.truststore.type",
    "ssl.client.auth",
    "delegation.token.secret.key",
    "delegation.token.expiry.time.ms",
    "delegation.token.max.lifetime.ms",
    "sasl.enabled.mechanisms",
    "sasl.mechanism.inter.broker.protocol",
    "super.users",
    "authorizer.class.name",
    "connections.max.reauth.ms",
    "sasl.server.max.receive.size",
    "sasl.oauthbearer.expected.audience",
    "listener.name.plaintext.plain.sasl.jaas.config",
    "listener.name.secure.oauthbearer.sasl.oauthbearer.expected.audience",
    "listener.name.short.plain.connections.max.reauth.ms",
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config",
]


def fields(names: list[str] | None) -> dict[str, object]:
    resource = {"resource_type": BROKER, "resource_name": "1", "configuration_keys": names}
    return {"resources": [resource], "include_synonyms": True, "include_documentation": False}


@scenario(cases=SECRETS)
def setting(s: SecuredSession, name: str) -> None:
    s.call("DescribeConfigs", 4, **fields([name]))


@scenario(versions="DescribeConfigs")
def secrets(s: SecuredSession, version: int) -> None:
    s.call("DescribeConfigs", version, **fields(["delegation.token.secret.key", "super.users"]))


@scenario
def everything_that_is_secret(s: SecuredSession) -> None:
    """No value of a sensitive setting is told, whatever its name is."""
    answer = s.quiet("DescribeConfigs", 4, **fields(None))
    told = [
        each["name"]
        for each in answer["results"][0]["configs"]
        if each["is_sensitive"] and each["value"] is not None
    ]
    s.record("sensitive settings with a value", {"configs": told})


@scenario(versions="DescribeConfigs")
def not_allowed(s: SecuredSession, version: int) -> None:
    s.user().call("DescribeConfigs", version, **fields(["super.users"]))


@scenario(cases={"describe_configs": DESCRIBE_CONFIGS, "alter_configs": ALTER_CONFIGS})
def allowed_by(s: SecuredSession, operation: int) -> None:
    s.allow(rule(operation, CLUSTER, "kafka-cluster"))
    s.user().call("DescribeConfigs", 4, **fields(["delegation.token.secret.key"]))


@scenario(cases={"user": 7, "client": 9, "ip": 10, "zero": 0, "one": 1})
def other_kinds_of_resources(s: SecuredSession, kind: int) -> None:
    resource = {"resource_type": kind, "resource_name": "ann", "configuration_keys": None}
    s.call("DescribeConfigs", 4, resources=[resource])
    s.user().call("DescribeConfigs", 4, resources=[resource])
