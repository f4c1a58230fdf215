"""The settings that both brokers run with: three listeners with SASL, users, an authorizer."""

from __future__ import annotations

from typing import Final

from tests.interop.differential.settings import BROKER_SETTINGS

ADMIN: Final = "admin"
"""A super user, whom Kafka's own broker is too."""
USERS: Final = (ADMIN, "root", "ann", "bob", "bobby")
"""All users of PLAIN; the password is the name. ``root`` is a super user too."""

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
LISTENERS: Final = {"PLAINTEXT": "SASL_PLAINTEXT", "SHORT": "SASL_PLAINTEXT", "SECURE": "SASL_SSL"}
"""PLAINTEXT and SHORT take unsecured tokens, and sessions of SHORT end. SECURE takes signed tokens.
The name PLAINTEXT is that of the first listener of both kinds of node in tests."""

PLAIN_SESSION_MS: Final = 400
SCRAM_SESSION_MS: Final = 60_000
AUDIENCE: Final = "differential"

_PACKAGE: Final = "org.apache.kafka.common.security"
_OAUTH: Final = f"{_PACKAGE}.oauthbearer"
_UNSECURED: Final = f"{_OAUTH}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"


def _of_listener(name: str) -> dict[str, str]:
    prefix = f"listener.name.{name.lower()}"
    users = " ".join(f'user_{each}="{each}"' for each in USERS)
    settings = {
        f"{prefix}.plain.sasl.jaas.config": (
            f"{_PACKAGE}.plain.PlainLoginModule required "
            f'username="{ADMIN}" password="{ADMIN}" {users};'
        ),
        f"{prefix}.oauthbearer.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
    }
    for mechanism in ("scram-sha-256", "scram-sha-512"):
        settings[f"{prefix}.{mechanism}.sasl.jaas.config"] = (
            f"{_PACKAGE}.scram.ScramLoginModule required;"
        )
    if name == "SECURE":
        handler = f"{_OAUTH}.OAuthBearerValidatorCallbackHandler"
        settings[f"{prefix}.oauthbearer.sasl.oauthbearer.expected.audience"] = AUDIENCE
    else:
        handler = _UNSECURED
    settings[f"{prefix}.oauthbearer.sasl.server.callback.handler.class"] = handler
    return settings


SETTINGS: Final = {
    **BROKER_SETTINGS,
    "listener.security.protocol.map": ",".join(
        f"{name}:{protocol}" for name, protocol in (*LISTENERS.items(), ("CONTROLLER", "PLAINTEXT"))
    ),
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "connection.failed.authentication.delay.ms": "10",
    **_of_listener("PLAINTEXT"),
    **_of_listener("SHORT"),
    **_of_listener("SECURE"),
    "listener.name.short.plain.connections.max.reauth.ms": str(PLAIN_SESSION_MS),
    "listener.name.short.scram-sha-256.connections.max.reauth.ms": str(SCRAM_SESSION_MS),
    "listener.name.short.scram-sha-512.connections.max.reauth.ms": str(SCRAM_SESSION_MS),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{ADMIN};User:root;User:ANONYMOUS",
    "delegation.token.secret.key": "differential",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
"""Kafka's own controller is ANONYMOUS. Files and addresses are added at the start."""

OPEN: Final = {**SETTINGS, "allow.everyone.if.no.acl.found": "true"}
