"""Sessions whose connections authenticate, and what a scenario says about security in one line."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from tests.interop.differential import codec
from tests.interop.differential.connection import ConnectionClosedError, RawConnection
from tests.interop.differential.security.sasl import describe_token
from tests.interop.differential.security.settings import ADMIN
from tests.interop.differential.security.site import Site
from tests.interop.differential.session import (
    CLIENT_ID,
    CLOSED,
    UNANSWERED,
    Answer,
    NoAnswerError,
    Peer,
    Session,
)

KEPT_S: Final = 0.4
"""How long a connection has to stay open to count as kept; failures are told after 10 ms."""
ANSWERED_S: Final = 5.0
"""How long an answer may take; Kafka gives none at all to some requests."""
KEPT: Final = "connection kept"
ANY: Final = 1
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, TOKEN, USER = 2, 3, 4, 5, 6, 7
LITERAL, PREFIXED = 3, 4
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 2, 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12
CREATE_TOKENS, DESCRIBE_TOKENS, TWO_PHASE_COMMIT = 13, 14, 15
DENY, ALLOW = 2, 3
EVERYTHING: Final = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}
"""The filter that finds every rule."""


def rule(
    operation: int,
    resource: int,
    name: str,
    principal: str = "User:ann",
    *,
    pattern: int = LITERAL,
    host: str = "*",
    permission: int = ALLOW,
) -> dict[str, object]:
    """Return a rule as CreateAcls carries it."""
    return {
        "resource_type": resource,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": principal,
        "host": host,
        "operation": operation,
        "permission_type": permission,
    }


class SecuredPeer(Peer):
    """A connection that authenticates as ``user`` with PLAIN when it opens, or does not."""

    answered_s = ANSWERED_S

    def __init__(
        self,
        session: SecuredSession,
        label: str,
        client_id: str | None,
        user: str | None,
        listener: str,
    ) -> None:
        super().__init__(session, label, client_id)
        self._secured = session
        self.user_name = user
        self._listener = listener
        self._is_authenticated = False
        self.told_ms = 0
        """How long the last answer said that the client is throttled."""
        self.asked_at_s = 0.0
        """When the last request was sent."""

    @property
    def connection(self) -> RawConnection:
        """The open connection."""
        if self._connection is None:
            self._connection = self._secured.open_at(self._listener)
            if self.user_name is not None:
                self._log_in(self.user_name)
        return self._connection

    def _log_in(self, user: str) -> None:
        connection = self.connection
        for api, version, fields in (
            ("SaslHandshake", 1, {"mechanism": "PLAIN"}),
            ("SaslAuthenticate", 2, {"auth_bytes": f"\0{user}\0{user}".encode()}),
        ):
            number = connection.next_correlation_id()
            connection.send_frame(codec.encode_request(api, version, fields, number, "log-in"))
            answer = codec.decode_response(api, version, connection.receive_frame())
            assert answer["error_code"] == 0, answer

    def post(self, api: str, version: int, /, **fields: object) -> None:
        """Send a request and do not wait."""
        self._secured.note(api)
        if api != "ApiVersions":
            self.asked_at_s = time.monotonic()
        super().post(api, version, **fields)

    def _receive(self) -> Answer | None:
        answer = super()._receive()
        if answer is not None:
            self.told_ms = answer.get("throttle_time_ms", 0)
        return answer

    def receive(self) -> Answer:
        """Wait for the answer to the oldest request that has none, and record it, or that there is
        none in ``ANSWERED_S``.
        """
        api, version = self._waiting[0]
        try:
            return super().receive()
        except TimeoutError:
            self.close()
            self._session.record(self._step(api, version), UNANSWERED)
            return {}

    def handshake(self, mechanism: str, version: int = 1) -> Answer:
        """Ask for a mechanism and record the answer."""
        self._is_authenticated = False
        return self.call("SaslHandshake", version, mechanism=mechanism)

    def token(self, data: bytes, version: int = 2) -> Answer:
        """Send a token of a mechanism and record the answer."""
        answer = self.call("SaslAuthenticate", version, auth_bytes=data)
        if answer.get("error_code") == 0:
            self._is_authenticated = _is_last(answer["auth_bytes"])
        return answer

    def raw_token(self, data: bytes) -> bytes:
        """Send a token as a frame without a header, and record what comes back."""
        connection = self.connection
        with suppress(ConnectionClosedError):
            connection.send_frame(data)
        try:
            answer = connection.receive_frame()
        except ConnectionClosedError:
            self.close()
            self._session.record("token", CLOSED)
            return b""
        self._is_authenticated = _is_last(answer)
        self._session.record("token", {"token": describe_token(answer)})
        return answer

    def frame(self, payload: bytes) -> None:
        """Send one frame of any bytes; ``ending`` records what follows."""
        with suppress(ConnectionClosedError):
            self.connection.send_frame(payload)

    def call_for(
        self, only: Callable[[Answer], Answer], api: str, version: int, /, **fields: object
    ) -> None:
        """Send a request and record what ``only`` makes of its answer."""
        try:
            answer = self.quiet(api, version, **fields)
        except TimeoutError:
            self.close()
            self._session.record(f"{api} v{version} on {self._label}", UNANSWERED)
        else:
            self._session.record(f"{api} v{version} on {self._label}", only(answer))

    def forget_waiting(self) -> None:
        """Expect no answer to what was sent."""
        self._waiting.clear()

    def ending(self, *, idle: bool = False) -> None:
        """Record whether the broker closes the connection or keeps it. One that is authenticated
        is asked something, unless ``idle``; of another there is only to see that nothing happens
        for a while.
        """
        if self._is_authenticated and not idle:
            self.post("ListGroups", 4, states_filter=["none"])
            kept = self._receive() is not None
            self._session.record(f"end of {self._label}", KEPT if kept else CLOSED)
            return
        try:
            self.connection.receive_frame(within_s=KEPT_S)
        except ConnectionClosedError:
            self.close()
            self._session.record(f"end of {self._label}", CLOSED)
        except TimeoutError:
            self._session.record(f"end of {self._label}", KEPT)
        else:
            self._session.record(f"end of {self._label}", "an answer that nobody asked for")


def _is_last(challenge: bytes) -> bool:
    """Whether what a broker answers to a token that it accepts is its last message."""
    return not challenge or challenge.startswith(b"v=")


class SecuredSession(Session):
    """One run of one scenario. ``main`` is a super user; ``user`` is who else there is."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._asked: set[str] = set()
        self.token_ids: set[str] = set()
        """The delegation tokens that this session has made."""
        super().__init__(site.addresses["PLAINTEXT"])

    def open_at(self, listener: str) -> RawConnection:
        """Connect to a listener."""
        tls = self.site.tls if listener == "SECURE" else None
        return RawConnection(self.site.addresses[listener], tls=tls)

    def _peer(self, label: str, client_id: str | None, user: str | None, listener: str) -> Any:
        if label not in self._peers:
            self._peers[label] = SecuredPeer(self, label, client_id, user, listener)
        return self._peers[label]

    def peer(self, label: str, client_id: str | None = CLIENT_ID) -> SecuredPeer:
        """Return the super user's connection called ``label``."""
        found: SecuredPeer = self._peer(label, client_id, ADMIN, "PLAINTEXT")
        return found

    def user(self, name: str = "ann", client_id: str | None = CLIENT_ID) -> SecuredPeer:
        """Return the connection of a user."""
        label = name if client_id == CLIENT_ID else f"{name} ({client_id})"
        found: SecuredPeer = self._peer(label, client_id, name, "PLAINTEXT")
        return found

    def stranger(self, listener: str = "PLAINTEXT", label: str = "stranger") -> SecuredPeer:
        """Return a connection that has not authenticated."""
        found: SecuredPeer = self._peer(label, CLIENT_ID, None, listener)
        return found

    def note(self, api: str) -> None:
        """Remember what was asked, for what has to be undone."""
        self._asked.add(api)

    def record(self, step: str, answer: Answer | str) -> None:
        """Append to what is compared, with random and unsteady parts described."""
        if isinstance(answer, dict):
            if answer.get("token_id"):
                self.token_ids.add(answer["token_id"])
                self.normaliser.know_name(answer["token_id"], "token")
            answer = _Describing(step).described(answer)
        super().record(step, answer)

    def close(self) -> None:
        """Take back rules and quotas, and close all connections."""
        try:
            if "CreateAcls" in self._asked:
                self.forget_rules()
            if self._asked & {"AlterClientQuotas", "IncrementalAlterConfigs"}:
                self.forget_quotas()
        finally:
            super().close()

    def forget_rules(self) -> None:
        """Delete every rule, and wait until the broker goes by none."""
        self._admin("DeleteAcls", 3, filters=[EVERYTHING])
        self._await(lambda answer: not answer["resources"], "DescribeAcls", 3, **EVERYTHING)

    def allow(self, *rules: dict[str, object]) -> None:
        """Create rules, and wait until the broker goes by them; they add to those there are."""
        present = self._count(self._admin("DescribeAcls", 3, **EVERYTHING))
        answer = self._admin("CreateAcls", 3, creations=list(rules))
        assert not any(each["error_code"] for each in answer["results"]), answer
        self._await(
            lambda answer: self._count(answer) == present + len(rules),
            "DescribeAcls",
            3,
            **EVERYTHING,
        )

    def allow_all(self, user: str) -> None:
        """Let a user do everything."""
        resources = ((TOPIC, "*"), (GROUP, "*"), (CLUSTER, "kafka-cluster"))
        self.allow(*(rule(ALL, kind, name, f"User:{user}") for kind, name in resources))

    @staticmethod
    def _count(answer: Answer) -> int:
        return sum(len(each["acls"]) for each in answer["resources"])

    def catch_up(self) -> None:
        """Wait until the broker goes by everything that was changed before: Apache Kafka answers a
        change when its controller has it, and its broker follows the controller in order.
        """
        self.quota({"client-id": "fence"}, producer_byte_rate=1e9)
        entity = [{"entity_type": "client-id", "entity_name": "fence"}]
        removal = [{"key": "producer_byte_rate", "remove": True}]
        self._admin("AlterClientQuotas", 1, entries=[{"entity": entity, "ops": removal}])
        components = [{"entity_type": "client-id", "match_type": 0, "match": "fence"}]
        self._await(
            lambda answer: not answer["entries"],
            "DescribeClientQuotas",
            1,
            components=components,
            strict=True,
        )

    def quota(self, entity: Mapping[str, str | None], **quotas: float) -> None:
        """Set quotas and wait until they can be seen."""
        parts = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
        ops = [{"key": key, "value": float(value)} for key, value in quotas.items()]
        answer = self._admin("AlterClientQuotas", 1, entries=[{"entity": parts, "ops": ops}])
        assert answer["entries"][0]["error_code"] == 0, answer
        components = [
            {"entity_type": kind, "match_type": 1 if name is None else 0, "match": name}
            for kind, name in entity.items()
        ]

        def shown(answer: Answer) -> bool:
            found = {
                value["key"]: value["value"]
                for entry in answer["entries"] or []
                for value in entry["values"]
            }
            return all(found.get(key) == value for key, value in quotas.items())

        self._await(shown, "DescribeClientQuotas", 1, components=components, strict=True)

    def forget_quotas(self) -> None:
        """Take every quota away, and wait until the broker goes by none."""
        found = self._admin("DescribeClientQuotas", 1, components=[], strict=False)["entries"]
        if not found:
            return
        entries = [
            {
                "entity": entry["entity"],
                "ops": [{"key": each["key"], "remove": True} for each in entry["values"]],
            }
            for entry in found
        ]
        self._admin("AlterClientQuotas", 1, entries=entries)
        self._await(
            lambda answer: not answer["entries"],
            "DescribeClientQuotas",
            1,
            components=[],
            strict=False,
        )

    def _admin(self, api: str, version: int, /, **fields: object) -> Answer:
        """Ask as a super user on a connection that is apart from those of the scenario."""
        return self.peer("apart", client_id="apart").quiet(api, version, **fields)

    def _await(
        self, done: Callable[[Answer], bool], api: str, version: int, /, **fields: object
    ) -> None:
        deadline = time.monotonic() + 20
        while not done(answer := self._admin(api, version, **fields)):
            assert time.monotonic() < deadline, answer
            time.sleep(0.005)


class _Describing:
    """Turns what is random, or depends on the clock, into words; ``host`` of a rule stays."""

    def __init__(self, step: str) -> None:
        self._is_about_rules = "Acls" in step

    def described(self, answer: Answer) -> Answer:
        fields = {self._key(key): self._value(key, value) for key, value in answer.items()}
        for key in ("results", "filter_results"):
            if self._is_about_rules and key in fields:
                rows = fields[key]
                fields[key] = [{"index": index, **row} for index, row in enumerate(rows)]
        return fields

    def _key(self, key: str) -> str:
        return "from_host" if key == "host" and self._is_about_rules else key

    def _value(self, key: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {self._key(name): self._value(name, each) for name, each in value.items()}
        if key == "mechanisms":
            return sorted(value)
        if isinstance(value, list):
            return [self._value(key, each) for each in value]
        if key == "throttle_time_ms":
            return "<throttled>" if value else 0
        if key == "auth_bytes":
            return describe_token(value)
        if key == "session_lifetime_ms" and value > 2_000:
            return f"<{math.ceil((value - 1_000) / 15_000) * 15} s>"
        if "timestamp" in key and value > 10**12:
            return f"<now and {round((value / 1000 - time.time()) / 60)} min>"
        if key == "hmac":
            return f"<{len(value)} bytes>"
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        return value


__all__ = ["NoAnswerError", "SecuredSession", "rule"]
