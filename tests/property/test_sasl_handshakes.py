"""Connections of a listener with SASL, sent messages that are right, wrong, changed, cut, replayed
and out of order, beside a plain model of who is authenticated when.

The model is told of each message what it is: whether a token is the one that belongs there is
known, for every token that is right was made for its exchange.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.model.deferred import Deferred
from millstream.model.entities import EntityKind
from millstream.model.entity_keys import name_key
from millstream.model.errors import ConnectionClosedError, ProtocolError
from millstream.protocol.codec import decode_response, encode_request
from millstream.protocol.message import Request
from millstream.protocol.messages.api_versions import ApiVersionsRequest
from millstream.protocol.messages.metadata import MetadataRequest
from millstream.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from millstream.protocol.messages.sasl_handshake import SaslHandshakeRequest
from millstream.protocol.outgoing import Outgoing
from millstream.security.sasl.scram import ScramClient
from millstream.security.sasl.scram_credential import (
    ScramMechanism,
    credential_of,
    format_credential,
    salt_password,
)
from millstream.server.sasl_session import SaslSession

LISTENER = "SASL_PLAINTEXT"
SESSION_MS = 60_000
PREFIX = "listener.name.sasl_plaintext"
SETTINGS = {
    "listeners": "PLAINTEXT://:9092,SASL_PLAINTEXT://:9094",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    f"{PREFIX}.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_ann="anns" user_bob="bobs";'
    ),
    f"{PREFIX}.plain.connections.max.reauth.ms": str(SESSION_MS),
}
PASSWORDS = {b"\0ann\0anns": "ann", b"\0bob\0bobs": "bob"}
SCRAM = "SCRAM-SHA-256"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminBroker]:
    directory: Path = tmp_path_factory.mktemp("broker")
    made = AdminBroker(directory, SETTINGS)
    sha_256 = ScramMechanism.SCRAM_SHA_256
    salted = salt_password(sha_256, "secret", b"some salt", 4096)
    text = format_credential(credential_of(sha_256, salted, b"some salt", 4096))
    made.controller.change_entities(
        EntityKind.USER, lambda _: {name_key("sam"): {SCRAM: text}}
    ).result()
    yield made
    made.close()


@dataclass
class Model:
    """Who a connection is, as KIP-43, KIP-152 and KIP-368 tell it."""

    step: str = "first"
    user: str | None = None
    """Whom requests are served for, also while that user authenticates again."""
    mechanism: str = ""
    before: str = ""
    """The mechanism of a user who authenticates again."""
    raw: bool = False
    is_begun: bool = False
    """True when the broker has taken the first message of SCRAM."""
    right_final: bytes | None = None
    """The only message that ends the exchange of SCRAM; None where none can."""
    ends_ms: float | None = None
    began_ms: float | None = None

    def close(self) -> None:
        self.step, self.user = "closed", None

    @property
    def is_waiting(self) -> bool:
        return self.step in ("first", "handshake")

    def versions(self, now_ms: float) -> None:
        if self.step == "first":
            self.step = "handshake"
        elif self.step != "complete" or self.has_ended(now_ms):
            self.close()

    def request(self, now_ms: float) -> None:
        if self.step != "complete" or self.has_ended(now_ms):
            self.close()

    def has_ended(self, now_ms: float) -> bool:
        return self.ends_ms is not None and now_ms > self.ends_ms

    def handshake(self, mechanism: str, version: int, now_ms: float) -> None:
        if self.step == "tokens":
            self.close()
            return
        if self.step == "complete":
            is_soon = self.began_ms is not None and now_ms - self.began_ms < 1000
            if self.ends_ms is None or is_soon:
                return
            self.began_ms, self.before = now_ms, self.mechanism
        if mechanism not in ("PLAIN", SCRAM):
            self.close()
            return
        self.step, self.mechanism, self.raw = "tokens", mechanism, version == 0
        self.is_begun, self.right_final = False, None

    def token(self, token: bytes, *, raw: bool, is_first: bool, now_ms: float) -> None:
        """``is_first`` says that the token is the first message of an exchange of SCRAM."""
        if self.step == "complete" and not raw:
            self.request(now_ms)  # an error, and the connection goes on
            return
        if self.step != "tokens" or raw != self.raw or self.before not in ("", self.mechanism):
            self.close()
        elif self.mechanism == "PLAIN" and token in PASSWORDS:
            self.complete(PASSWORDS[token], now_ms + SESSION_MS)
        elif self.mechanism == SCRAM and not self.is_begun and is_first:
            self.is_begun = True
        elif self.mechanism == SCRAM and self.is_begun and token == self.right_final:
            self.complete("sam", None)
        else:
            self.close()

    def complete(self, user: str, ends_ms: float | None) -> None:
        if self.user is not None and self.user != user:
            self.close()
            return
        self.step, self.user, self.ends_ms, self.before = "complete", user, ends_ms, ""


@dataclass
class Connection:
    """One connection and its model; ``sent`` are the tokens of every connection of the example."""

    broker: AdminBroker
    sent: list[bytes]
    model: Model = field(default_factory=Model)
    scram: ScramClient | None = None

    def __post_init__(self) -> None:
        session = self.broker.connect(LISTENER)
        assert isinstance(session, SaslSession)
        self.session = session

    @property
    def now_ms(self) -> float:
        return self.broker.clock.monotonic_ms()

    def send(self, frame: bytes) -> bytes | None:
        """Send one frame and return the answer; None when that ends the connection."""
        try:
            served = self.session.serve(memoryview(bytearray(frame)))
        except (ProtocolError, ConnectionClosedError):
            return None
        if isinstance(served, Deferred):
            assert not served.done, "a refusal waits"
            return None
        assert isinstance(served, Outgoing)
        return served.join()[4:]

    def send_token(self, token: bytes, *, raw: bool, version: int, is_first: bool = False) -> None:
        self.sent.append(token)
        self.model.token(token, raw=raw, is_first=is_first, now_ms=self.now_ms)
        if raw:
            self.learn(self.send(token), is_first)
            return
        frame = framed(SaslAuthenticateRequest(auth_bytes=token), version)
        answer = self.send(frame)
        if answer is not None and is_first:
            decoded = decode_response(SaslAuthenticateRequest.API_KEY, version, answer)[1]
            assert isinstance(decoded, SaslAuthenticateResponse)
            answer = bytes(decoded.auth_bytes)
        self.learn(answer, is_first)

    def learn(self, challenge: bytes | None, is_first: bool) -> None:
        """Let the model know which last message is right, from what the broker answers."""
        self.check(is_closed=challenge is None)
        if is_first and challenge and self.model.is_begun and self.scram is not None:
            self.model.right_final = self.scram.evaluate(challenge)

    def check(self, *, is_closed: bool) -> None:
        model = self.model
        assert is_closed == (model.step == "closed")
        if not is_closed:
            assert self.session.is_authenticated == (model.user is not None)
            principal = self.session._connection.principal
            assert principal.name == (model.user or "ANONYMOUS")


def framed(request: Request, version: int) -> bytes:
    return encode_request(request, version, 7, "tester").join()[4:]


@st.composite
def changed(draw: st.DrawFn) -> tuple[str, int, int]:
    return "changed", draw(st.integers(0, 200)), draw(st.integers(1, 255))


versions = st.integers(0, 2)
actions = st.one_of(
    st.tuples(st.just("versions"), st.sampled_from([0, 3, 4])),
    st.tuples(
        st.just("handshake"), st.sampled_from(["PLAIN", SCRAM, SCRAM, "GSSAPI"]), st.integers(0, 1)
    ),
    st.tuples(st.just("plain"), st.sampled_from(sorted(PASSWORDS)), versions),
    st.tuples(st.just("plain"), st.sampled_from([b"", b"\0ann\0bobs", b"\0ann\0ann"]), versions),
    st.tuples(st.just("first"), st.sampled_from(["sam", "sam", "nobody"]), versions),
    st.tuples(st.just("final"), versions),
    st.tuples(st.just("wrong proof"), versions),
    st.tuples(st.just("replayed"), st.integers(0, 30), versions),
    changed(),
    st.tuples(st.just("cut"), st.integers(1, 40), versions),
    st.tuples(st.just("garbage"), st.binary(max_size=40)),
    st.tuples(st.just("metadata")),
    st.tuples(st.just("wait"), st.sampled_from([1, 999, 1_001, 59_000, 61_000])),
    st.tuples(st.just("connect")),
)
ANN = [("handshake", "PLAIN", 1), ("plain", b"\0ann\0anns", 2)]
BOB = [("handshake", "PLAIN", 1), ("plain", b"\0bob\0bobs", 2)]
SAM = [("handshake", SCRAM, 1), ("first", "sam", 2), ("final", 2)]
straight = st.sampled_from(
    [
        SAM,
        [("handshake", SCRAM, 0), *SAM[1:]],
        [("handshake", SCRAM, 1), ("first", "sam", 1), ("wrong proof", 1)],
        [("versions", 3), *ANN, ("metadata",)],
        [("handshake", "PLAIN", 0), BOB[1], ("wait", 1_001)],
        [*ANN, *BOB],
        [*BOB, *BOB, ("wait", 999), *BOB],
        [*ANN, ("handshake", "PLAIN", 0), ANN[1]],
        [*ANN, ("wait", 61_000), ("metadata",)],
        [*ANN, ("wait", 61_000), *ANN],
        [*ANN, *SAM],
    ]
)
"""What goes well, or nearly, so that what is drawn around it meets every step."""
stories = st.lists(st.one_of(straight, actions.map(lambda each: [each])), max_size=12).map(
    lambda parts: [each for part in parts for each in part]
)


@pytest.mark.slow
@settings(
    max_examples=examples(300),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(
    story=stories, styles=st.lists(st.sampled_from([False] * 7 + [True]), min_size=8, max_size=8)
)
@example(story=[*ANN, *BOB, ("metadata",)], styles=[False] * 8)
def test_nobody_is_authenticated_but_by_the_model(
    broker: AdminBroker, story: list[tuple[object, ...]], styles: list[bool]
) -> None:
    """``styles`` says which tokens are sent in the other form than the handshake asked for."""
    sent: list[bytes] = []
    connection = Connection(broker, sent)
    for number, action in enumerate(story):
        if connection.model.step == "closed" or action[0] == "connect":
            connection.session.closed()
            connection = Connection(broker, sent)
        perform(connection, action, in_other_form=styles[number % 8])
    connection.session.closed()


def perform(one: Connection, action: tuple[object, ...], *, in_other_form: bool) -> None:
    match action:
        case "versions", int(version):
            is_raw = one.model.step == "tokens" and one.model.raw
            one.model.versions(one.now_ms)
            request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
            one.check(is_closed=one.send(framed(request, version)) is None)
            assert not is_raw or one.model.step == "closed"
        case "handshake", str(mechanism), int(version):
            one.model.handshake(mechanism, version, one.now_ms)
            answer = one.send(framed(SaslHandshakeRequest(mechanism=mechanism), version))
            one.check(is_closed=answer is None)
        case "plain", bytes(token), int(version):
            send_token(one, token, version, in_other_form)
        case "first", str(user), int(version):
            one.scram = ScramClient(
                ScramMechanism.SCRAM_SHA_256, username=user, password="secret", nonce="abc"
            )
            first = one.scram.evaluate(None)
            if user == "nobody":
                one.scram = None
            send_token(one, first, version, in_other_form, is_first=True)
        case "final", int(version):
            send_token(one, one.model.right_final or b"c=biws,r=abc,p=AAAA", version, in_other_form)
        case "wrong proof", int(version):
            final = one.model.right_final or b"c=biws,r=abc,p=AAAA"
            head, _, proof = final.rpartition(b",p=")
            turned = proof[4:8] + proof[:4] + proof[8:]
            send_token(one, head + b",p=" + turned, version, in_other_form)
        case "replayed", int(index), int(version):
            token = one.sent[index % len(one.sent)] if one.sent else b""
            is_first = token.startswith(b"n,,")
            if is_first:
                one.scram = None
            send_token(one, token, version, in_other_form, is_first=is_first)
        case "changed", int(position), int(bits):
            # The last bits of a proof in base64 mean nothing, so the end is left alone.
            token = bytearray(one.model.right_final or b"\0ann\0anns")
            token[position % (len(token) // 2)] ^= bits
            send_token(one, bytes(token), 1, in_other_form)
        case _:
            perform_other(one, action)


def perform_other(one: Connection, action: tuple[object, ...]) -> None:
    match action:
        case "cut", int(count), int(version):
            frame = framed(SaslAuthenticateRequest(auth_bytes=b"\0ann\0anns"), version)
            one.model.close()
            one.check(is_closed=one.send(frame[:-count]) is None)
        case "garbage", bytes(data):
            one.model.close()
            one.check(is_closed=one.send(b"\x7f\xff" + data) is None)
        case ("metadata",):
            one.model.request(one.now_ms)
            one.check(is_closed=one.send(framed(MetadataRequest(topics=[]), 12)) is None)
        case "wait", int(milliseconds):
            one.broker.clock.advance(milliseconds)


def send_token(
    one: Connection, token: bytes, version: int, in_other_form: bool, *, is_first: bool = False
) -> None:
    raw = one.model.raw and one.model.step == "tokens"
    one.send_token(token, raw=raw != in_other_form, version=version, is_first=is_first)
