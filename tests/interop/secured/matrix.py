"""Which client meets our broker in which way, and what each says when it is refused.

    python -m tests.interop.secured.matrix      writes the table into docs/compatibility.md

`test_matrix` runs what the table shows: both are made of CLIENTS, WAYS and TOKEN_WAYS.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[3] / "docs" / "compatibility.md"
BEGIN: Final = "<!-- written by tests/interop/secured/matrix.py: begin -->\n"
END: Final = "<!-- written by tests/interop/secured/matrix.py: end -->\n"

CERTIFICATE: Final = "certificate"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SASL_PROTOCOLS: Final = ("SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True)
class Way:
    """How a client says who it is, and the protocol of its listener."""

    mechanism: str
    protocol: str

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def name(self) -> str:
        return f"{self.mechanism}-{self.protocol}".lower().replace("_", "-")


WAYS: Final = (
    *(Way(each, protocol) for each in MECHANISMS for protocol in SASL_PROTOCOLS),
    Way(CERTIFICATE, "SSL"),
)
TOKEN_WAYS: Final = tuple(
    Way(each, protocol) for each in MECHANISMS[1:3] for protocol in SASL_PROTOCOLS
)
"""A delegation token is used as a SCRAM user."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """How a client reports it: its class, or its name of the code, and a part of what it tells."""

    error: str
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One client of `programs`, and what it reports."""

    name: str
    title: str
    password: Refusal
    """A wrong password; the mechanism is put in where ``told`` has {}."""
    token: Refusal
    """A token of OAUTHBEARER that a key has signed which the broker does not know."""
    certificate: Refusal
    """A certificate that nobody has signed whom the broker trusts."""
    authority: Refusal
    """The broker's certificate, where the client does not trust who has signed it."""
    topic: Refusal
    """No rule for a topic, whose name is put in."""
    group: Refusal
    has_delegation_tokens: bool = False
    needs_java: bool = False


_SCRAM: Final = "invalid credentials with SASL mechanism {}"

CLIENTS: Final = (
    Client(
        name="java",
        title="Java (kafka-clients 4.3)",
        password=Refusal("SaslAuthenticationException", _SCRAM),
        token=Refusal("SaslAuthenticationException", "invalid_token"),
        certificate=Refusal("SslAuthenticationException", "unknown_ca"),
        authority=Refusal("SslAuthenticationException", "unable to find valid certification path"),
        topic=Refusal("TopicAuthorizationException", "[{}]"),
        group=Refusal("GroupAuthorizationException", "closed"),
        has_delegation_tokens=True,
        needs_java=True,
    ),
    Client(
        name="librdkafka",
        title="librdkafka (confluent-kafka)",
        password=Refusal("_AUTHENTICATION", _SCRAM),
        token=Refusal("_AUTHENTICATION", "invalid_token"),
        certificate=Refusal("_TRANSPORT", "alert unknown ca"),
        authority=Refusal("_SSL", "certificate could not be verified"),
        topic=Refusal("TOPIC_AUTHORIZATION_FAILED", "{}"),
        group=Refusal("GROUP_AUTHORIZATION_FAILED", ""),
    ),
    Client(
        name="kafka-python",
        title="kafka-python",
        # Where the last answer and the end of the connection come together, it reads the end alone.
        password=Refusal("KafkaTimeoutError", "Unable to bootstrap"),
        token=Refusal("KafkaTimeoutError", "Unable to bootstrap"),
        certificate=Refusal("KafkaTimeoutError", "UNKNOWN_CA"),
        authority=Refusal("KafkaTimeoutError", "certificate verify failed"),
        topic=Refusal("TopicAuthorizationFailedError", "{}"),
        group=Refusal("GroupAuthorizationFailedError", "closed"),
    ),
    Client(
        name="aiokafka",
        title="aiokafka",
        password=Refusal("KafkaConnectionError", _SCRAM),
        # It takes the broker's refusal for the end of the exchange and goes on.
        token=Refusal("KafkaConnectionError", "closed"),
        certificate=Refusal("KafkaConnectionError", ""),
        authority=Refusal("KafkaConnectionError", "certificate verify failed"),
        topic=Refusal("TopicAuthorizationFailedError", "{}"),
        group=Refusal("GroupAuthorizationFailedError", "closed"),
    ),
    Client(
        name="franz-go",
        title="franz-go 1.22",
        password=Refusal("SASL_AUTHENTICATION_FAILED", _SCRAM),
        token=Refusal("*errors.errorString", "unexpected data in oauth response"),
        certificate=Refusal("tls.alert", "unknown certificate authority"),
        authority=Refusal("CertificateVerificationError", "signed by unknown authority"),
        topic=Refusal("TOPIC_AUTHORIZATION_FAILED", "{}"),
        group=Refusal("GROUP_AUTHORIZATION_FAILED", ""),
        has_delegation_tokens=True,
    ),
    Client(
        name="kafkajs",
        title="kafkajs 2.2",
        password=Refusal("KafkaJSSASLAuthenticationError", _SCRAM),
        token=Refusal("KafkaJSConnectionClosedError", ""),  # as aiokafka
        certificate=Refusal("KafkaJSConnectionError", "alert unknown ca"),
        authority=Refusal("KafkaJSConnectionError", "certificate"),
        # Its errors of the protocol have no topic.
        topic=Refusal("TOPIC_AUTHORIZATION_FAILED", ""),
        # It asks every broker for the coordinator and drops what they answer.
        group=Refusal("KafkaJSGroupCoordinatorNotFound", ""),
    ),
)

PLAIN_REFUSED: Final = "Invalid username or password"


def password_refused(client: Client, mechanism: str) -> str:
    """Return what a client tells of a wrong password: mostly the words of the broker."""
    if client.password.told == _SCRAM and mechanism == "PLAIN":
        return PLAIN_REFUSED
    return client.password.told.format(mechanism)


def table() -> str:
    """Return the rows of the page."""
    titles = [*MECHANISMS, "client certificate", "delegation token"]
    lines = [f"| Client | {' | '.join(titles)} |", f"|---|{'---|' * len(titles)}"]
    for client in CLIENTS:
        cells = [_protocols(WAYS, each) for each in (*MECHANISMS, CERTIFICATE)]
        cells.append("not in this client")
        if client.has_delegation_tokens:
            cells[-1] = _protocols(TOKEN_WAYS, TOKEN_WAYS[0].mechanism)
        lines.append(f"| {client.title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _protocols(ways: tuple[Way, ...], mechanism: str) -> str:
    return ", ".join(way.protocol for way in ways if way.mechanism == mechanism)


def updated(page: str) -> str:
    """Return the page with the present table between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
