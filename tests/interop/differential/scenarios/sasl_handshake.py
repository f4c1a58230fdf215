"""SaslHandshake where nobody has to say who they are: a plaintext listener."""

from __future__ import annotations

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session


@scenario(cases=["PLAIN", "SCRAM-SHA-256", "GSSAPI", "no-such", ""], versions="SaslHandshake")
def on_plaintext(s: Session, mechanism: str, version: int) -> None:
    s.call("SaslHandshake", version, mechanism=mechanism)
    s.call("SaslHandshake", version, mechanism=mechanism)


@scenario
def the_connection_serves_on(s: Session) -> None:
    s.call("SaslHandshake", 1, mechanism="PLAIN")
    s.call("SaslAuthenticate", 2, auth_bytes=b"\0ann\0secret")
    s.call("ListGroups", 4, states_filter=["no-such-state"])


@scenario
def version_not_served(s: Session) -> None:
    s.main.post_raw("SaslHandshake", 1, b"\0\x11\0\2\0\0\0\7\0\1x\0\5PLAIN")
    s.main.receive()
