"""What became of each authentication of a listener with SASL is in the audit log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.handlers.admin_broker import AdminBroker
from tests.unit.security.audit.audit_events import check
from tests.unit.server.test_sasl_session import METADATA, SETTINGS, Client

from millstream.model.errors import ConnectionClosedError
from millstream.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from millstream.protocol.messages.sasl_handshake import SaslHandshakeRequest
from millstream.security.audit.machine import Entry

RECORDED = "succeeded", "failed", "expired"
WRONG = SaslAuthenticateRequest(auth_bytes=b"\0ann\0wrong")


class Site(AdminBroker):
    """A broker that keeps its records of authentications instead of writing them."""

    def __init__(self, directory: Path) -> None:
        classes = {f"audit.log.authentication.{each}": "topic" for each in RECORDED}
        again = {"listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "5000"}
        super().__init__(directory, {**SETTINGS, **classes, **again})
        self._entries: list[Entry] = []
        assert self.services.audit is not None
        self.services.audit._machine._emit = self._keep

    def _keep(self, entry: Entry) -> bool:
        self._entries.append(entry)
        return True

    def records(self) -> list[dict[str, Any]]:
        found = [json.loads(each.value) for each in self._entries]
        self._entries.clear()
        for each in found:
            check(each)
        return [each["data"] for each in found]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


@pytest.fixture
def client(site: Site) -> Client:
    return Client(site)


def told(record: dict[str, Any]) -> tuple[str, str, str, bool, str]:
    """Return the outcome, who it was, the name that was tried, whether again, and why."""
    who = record["authenticationInfo"]
    return (
        record["outcome"],
        who["principal"],
        who.get("metadata", {}).get("identifier", ""),
        record["reauthentication"],
        record["result"].get("message", ""),
    )


def test_who_was_let_in(site: Site, client: Client) -> None:
    client.handshake()
    assert site.records() == []
    client.authenticate(b"\0ann\0anns")
    assert [told(each) for each in site.records()] == [("succeeded", "User:ann", "ann", False, "")]
    site.clock.advance(1000)
    client.handshake()
    client.authenticate(b"\0ann\0anns")
    assert [told(each) for each in site.records()] == [("succeeded", "User:ann", "ann", True, "")]
    client.metadata()
    assert site.records() == []


def test_a_wrong_password(site: Site, client: Client) -> None:
    client.handshake()
    client.refused_request(WRONG, 2)
    why = "Authentication failed: Invalid username or password"
    assert [told(each) for each in site.records()] == [
        ("failed", "User:ANONYMOUS", "ann", False, why)
    ]


def test_a_wrong_password_the_second_time(site: Site, client: Client) -> None:
    client.handshake()
    client.authenticate(b"\0ann\0anns")
    site.records()
    client.handshake()
    client.refused_request(WRONG, 2)
    (record,) = site.records()
    assert told(record)[:4] == ("failed", "User:ann", "ann", True)


def test_a_mechanism_that_there_is_not(site: Site, client: Client) -> None:
    client.refused_request(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    (record,) = site.records()
    assert told(record)[:4] == ("failed", "User:ANONYMOUS", "", False)


def test_another_request_in_place_of_a_token(site: Site, client: Client) -> None:
    client.handshake()
    client.refused(METADATA)
    (record,) = site.records()
    assert told(record)[:4] == ("failed", "User:ANONYMOUS", "", False)


def test_a_raw_token_that_is_refused(site: Site, client: Client) -> None:
    client.handshake(version=0)
    client.refused(b"\0ann\0wrong")
    (record,) = site.records()
    assert told(record)[:4] == ("failed", "User:ANONYMOUS", "ann", False)


def test_a_session_that_has_ended(site: Site, client: Client) -> None:
    client.handshake()
    client.authenticate(b"\0ann\0anns")
    site.records()
    site.clock.advance(5001)
    with pytest.raises(ConnectionClosedError):
        client.raw(METADATA)
    assert [told(each)[:4] for each in site.records()] == [("expired", "User:ann", "ann", False)]
