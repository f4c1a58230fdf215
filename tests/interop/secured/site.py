"""One broker that every client of the matrix meets: a listener for each protocol, an authorizer,
and a user who is let in by each mechanism under one name.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.peers.kafka import free_port
from tests.broker_process import BrokerProcess
from tests.interop.differential.connection import RawConnection
from tests.interop.secured.matrix import CERTIFICATE, Way
from tests.tls_authority import Authority
from tests.unit.security.sasl.tokens import jwks, key, signed

from millstream.client import Admin
from millstream.client.core.admin.access import ScramMechanism
from millstream.client.core.admin.topics import NewTopic
from millstream.model.acl import Acl, AclOperation, AclResource, PatternType
from millstream.protocol.codec import decode_response, encode_request
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from millstream.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from millstream.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from millstream.protocol.messages.sasl_handshake import SaslHandshakeRequest

PARTITIONS: Final = 2
OPEN: Final = "open-"
"""ann may write and read topics, and read in groups, whose names begin so."""
WRITE_ONLY: Final = "write-only"
READ_ONLY: Final = "read-only"
HIDDEN: Final = "hidden"
"""ann may not even know of this topic; nor of groups of other names than open-…"""

USER: Final = "ann"
PASSWORD: Final = "ann's hunter2, =scram"
PATIENCE_S: Final = 1.0
WRONG_PASSWORD: Final = "hush-hush"
LISTENERS: Final = ("SASL_PLAINTEXT", "SASL_SSL", "SSL")


class Asking:
    """A connection that sends one request after the other and decodes the answers."""

    def __init__(self, connection: RawConnection) -> None:
        self._connection = connection

    def ask(self, request: Request, version: int) -> Response:
        number = self._connection.next_correlation_id()
        self._connection.send_bytes(encode_request(request, version, number, "test").join())
        _, answer = decode_response(request.API_KEY, version, self._connection.receive_frame())
        return answer


class SecuredBroker(BrokerProcess):
    """`port` is that of a listener without any security, where everybody is a super user."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(directory)
        self.authority = Authority(directory)
        self.stranger = Authority(directory, "another authority")
        self.authority.issue("broker", ["127.0.0.1"])
        self.authority.issue(USER)
        self.stranger.issue("stranger")
        self.ports = {protocol: free_port() for protocol in LISTENERS}
        self.port = free_port()
        keys = directory / "keys.json"
        keys.write_bytes(jwks(key("RSA", "one")))
        self._add_settings(keys)
        self.settings |= settings or {}

    def _add_settings(self, keys: Path) -> None:
        package = "org.apache.kafka.common.security"
        plain = f'{package}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        self.settings = {
            "listeners": ",".join(
                f"{name}://127.0.0.1:{port}"
                for name, port in {"PLAINTEXT": self.port, **self.ports}.items()
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.authority.directory / "broker.both.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.path),
            "listener.name.ssl.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain,
            "listener.name.sasl_ssl.plain.sasl.jaas.config": plain,
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.expected.audience": "kafka",
            "delegation.token.secret.key": "the key of tokens",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "group.initial.rebalance.delay.ms": "0",
            "connection.failed.authentication.delay.ms": "10",
        }

    def command(self) -> list[str]:
        """Return the command line: the listeners are among the settings."""
        words = super().command()
        for name in ("--host", "--port"):
            at = words.index(name)
            del words[at : at + 2]
        return words

    def prepare(self) -> None:
        """Make the user, the topics and the rules."""
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            for mechanism in ScramMechanism:
                admin.alter_user_scram_credentials({USER: PASSWORD}, mechanism=mechanism).get_all()
            names = (WRITE_ONLY, READ_ONLY, HIDDEN)
            admin.create_topics([NewTopic(each, PARTITIONS) for each in names]).get_all()
            topic, group = AclResource.TOPIC, AclResource.GROUP
            write, read, describe = AclOperation.WRITE, AclOperation.READ, AclOperation.DESCRIBE
            admin.create_acls(
                [
                    *_rules(topic, OPEN, (write, read), PatternType.PREFIXED),
                    *_rules(group, OPEN, (read,), PatternType.PREFIXED),
                    *_rules(topic, WRITE_ONLY, (write, describe)),
                    *_rules(topic, READ_ONLY, (read, describe)),
                ]
            ).get_all()

    def create(self, topic: str) -> str:
        """Make a topic; return its name."""
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.create_topics([NewTopic(topic, PARTITIONS)]).get_all()
        return topic

    def settings_of(self, way: Way) -> dict[str, object]:
        """Return what a client is given to be let in as ann, by the names of `worker`."""
        found: dict[str, object] = {
            "bootstrap": f"127.0.0.1:{self.ports[way.protocol]}",
            "protocol": way.protocol,
        }
        if way.has_tls:
            found["ca"] = str(self.authority.path)
        if way.mechanism == CERTIFICATE:
            return found | self._certificate(self.authority, USER)
        found["mechanism"] = way.mechanism
        if way.mechanism == "OAUTHBEARER":
            return found | {"token": token()}
        return found | {"username": USER, "password": PASSWORD}

    def wrong_settings_of(self, way: Way) -> dict[str, object]:
        """Return the same with a password, a token or a certificate that the broker refuses."""
        found = self.settings_of(way) | {"patience_s": PATIENCE_S}
        if way.mechanism == CERTIFICATE:
            return found | self._certificate(self.stranger, "stranger")
        if way.mechanism == "OAUTHBEARER":
            return found | {"token": token(signer="another")}
        return found | {"password": WRONG_PASSWORD}

    def refused_count(self, way: Way) -> int:
        """Return how often the broker has noted that it let nobody in by such a way."""
        if way.mechanism == CERTIFICATE:
            return self.log.count("the certificate is refused")
        return self.log.count(f"Failed authentication of 127.0.0.1 on listener {way.protocol} (")

    def distrusting_settings_of(self, way: Way) -> dict[str, object]:
        """Return those of a client that does not trust who has signed the broker's certificate."""
        trust = {"ca": str(self.stranger.path), "patience_s": PATIENCE_S}
        return self.settings_of(way) | trust

    def issue_token(self) -> tuple[str, bytes]:
        """Return the id and the HMAC of a new delegation token of ann's."""
        with self._authenticated() as ann:
            answer = ann.ask(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
        assert isinstance(answer, CreateDelegationTokenResponse)
        assert answer.error_code == 0, answer
        return answer.token_id, answer.hmac

    def end_token(self, hmac: bytes) -> None:
        """Have a token expire at once."""
        with self._authenticated() as ann:
            answer = ann.ask(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1), 2)
        assert isinstance(answer, ExpireDelegationTokenResponse)
        assert answer.error_code == 0, answer

    @contextmanager
    def _authenticated(self) -> Iterator[Asking]:
        connection = RawConnection(f"127.0.0.1:{self.ports['SASL_PLAINTEXT']}")
        try:
            ann = Asking(connection)
            ann.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            proof = f"\0{USER}\0{PASSWORD}".encode()
            answer = ann.ask(SaslAuthenticateRequest(auth_bytes=proof), 2)
            assert isinstance(answer, SaslAuthenticateResponse)
            assert answer.error_code == 0, answer
            yield ann
        finally:
            connection.close()

    @staticmethod
    def _certificate(authority: Authority, name: str) -> dict[str, object]:
        return {
            "certificate": str(authority.directory / f"{name}.crt.pem"),
            "key": str(authority.directory / f"{name}.key.pem"),
        }


def token(*, signer: str = "one") -> str:
    """Return a token of OAUTHBEARER for ann; the key of ``another`` is not known to the broker."""
    now = int(time.time())
    signed_by = key("RSA", "one") if signer == "one" else key("RSA", signer)
    header = {"kid": "one"}
    return signed(signed_by, "RS256", header, aud="kafka", iat=now, exp=now + 900, sub=USER)


def _rules(
    resource: AclResource,
    name: str,
    operations: Sequence[AclOperation],
    pattern: PatternType = PatternType.LITERAL,
) -> list[Acl]:
    return [
        Acl(
            resource=resource,
            name=name,
            principal=f"User:{USER}",
            operation=operation,
            pattern=pattern,
        )
        for operation in operations
    ]
