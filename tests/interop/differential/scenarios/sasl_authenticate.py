"""SaslAuthenticate where nobody has to say who they are: a plaintext listener."""

from __future__ import annotations

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session


@scenario(cases={"plain": b"\0ann\0secret", "nothing": b""}, versions="SaslAuthenticate")
def on_plaintext(s: Session, token: bytes, version: int) -> None:
    s.call("SaslAuthenticate", version, auth_bytes=token)


@scenario
def version_not_served(s: Session) -> None:
    s.main.post_raw("SaslAuthenticate", 2, b"\0\x24\0\3\0\0\0\7\0\1x\0\2a\0")
    s.main.receive()
