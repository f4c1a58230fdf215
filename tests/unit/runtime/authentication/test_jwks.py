from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.tls_authority import Authority
from tests.tls_peer import server_context
from tests.unit.runtime.coordinator_site import HandClock, HeldOffload
from tests.unit.security.sasl.tokens import jwks, key

from millstream.config.broker import BrokerConfig
from millstream.model.errors import ConfigError
from millstream.runtime.authentication.bearer_tokens import BearerTokens
from millstream.runtime.authentication.jwks import Jwks, RefreshTimes, reader_of
from millstream.security.sasl.jwt_validation import parse_jwks

TIMES = RefreshTimes(refresh_ms=60_000, retry_ms=100, max_retry_ms=1000)


class Site:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = HandClock()
        self.offload = HeldOffload()
        self.publish("one")
        self.jwks = Jwks(path.as_uri(), TIMES, self.clock, self.offload)

    def publish(self, *names: str) -> None:
        self.path.write_bytes(jwks(*(key("EC", name) for name in names)))

    def advance(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)
        self.offload.release()
        self.clock.settle()

    @property
    def names(self) -> set[str]:
        return {str(each.kid) for each in self.jwks.keys._keys}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "a set of keys.json")


def test_the_keys_are_there_at_once_and_read_again(site: Site) -> None:
    assert site.names == {"one"}
    site.publish("one", "two")
    site.advance(59_999)
    assert site.names == {"one"}
    site.advance(1)
    assert site.names == {"one", "two"}
    site.publish("two")
    site.advance(60_000)
    assert site.names == {"two"}


def test_the_keys_of_before_stay_when_reading_fails(site: Site) -> None:
    site.path.write_text("{")
    site.advance(60_000)
    assert site.names == {"one"}
    site.publish("two")
    site.advance(99)
    assert site.names == {"one"}
    site.advance(1)
    assert site.names == {"two"}


def test_it_waits_longer_after_each_failure(site: Site) -> None:
    site.path.unlink()
    site.advance(60_000)
    for wait_ms in (100, 200, 400, 800, 1000, 1000):
        site.advance(wait_ms - 1)
        site.publish("two")
        assert site.names == {"one"}
        site.path.unlink()
        site.advance(1)
    site.publish("two")
    site.advance(1000)
    assert site.names == {"two"}


def test_an_unknown_key_has_them_read_but_not_all_the_time(site: Site) -> None:
    site.publish("two")
    site.jwks.key_is_missing("two")
    site.advance(0)
    assert site.names == {"two"}
    site.publish("three")
    for _ in range(9):
        site.jwks.key_is_missing("anything")
        site.advance(100)
        assert site.names == {"two"}
    site.advance(100)
    site.jwks.key_is_missing("anything")
    site.advance(0)
    assert site.names == {"three"}


def test_nothing_is_read_after_the_end(site: Site) -> None:
    site.jwks.close()
    assert site.clock.timers_running == 0
    site.publish("two")
    site.jwks.key_is_missing("two")
    site.advance(120_000)
    assert site.names == {"one"}


def test_a_file_that_is_not_there_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        Jwks((tmp_path / "no").as_uri(), TIMES, HandClock(), HeldOffload())
    (tmp_path / "large").write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(ConfigError, match="more than 1048576 bytes"):
        Jwks((tmp_path / "large").as_uri(), TIMES, HandClock(), HeldOffload())


@pytest.mark.parametrize(
    "url", ["", "x", "/etc/passwd", "file://host/x", "ftp://x/y", "http://example.org/jwks"]
)
def test_addresses_that_are_not_read(url: str) -> None:
    with pytest.raises(ConfigError, match="neither a file: nor an https: address"):
        reader_of(url)


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/keys")
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(jwks(key("EC", "one")) if self.path == "/keys" else b"x" * (2 << 20))

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_set_is_fetched(address: str) -> None:
    clock, offload = HandClock(), HeldOffload()
    offload.held = True
    found = Jwks(f"{address}/keys", TIMES, clock, offload)
    assert len(found.keys) == 0
    offload.release()
    clock.settle()
    assert len(found.keys) == 1


def test_redirects_and_large_answers_are_not_followed(address: str) -> None:
    with pytest.raises(OSError, match="302"):
        reader_of(f"{address}/moved")()
    with pytest.raises(ValueError, match="more than"):
        reader_of(f"{address}/large")()


def test_an_endpoint_has_an_authority_of_its_own(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("endpoint", ["127.0.0.1"])
    stranger = Authority(tmp_path, "a stranger")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        server.socket = server_context(*files).wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"https://127.0.0.1:{server.server_port}/keys"
        try:
            found = reader_of(url, {"ssl.truststore.location": str(authority.path)})()
            assert len(parse_jwks(found)) == 1
            for options in ({}, {"ssl.truststore.location": str(stranger.path)}):
                with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
                    reader_of(url, options)()
        finally:
            server.shutdown()
            thread.join()


def test_a_trust_store_that_is_not_there_is_told_at_the_start() -> None:
    with pytest.raises(ConfigError, match=r"sasl\.jaas\.config: ssl\.truststore\.location: /no"):
        reader_of("https://h/keys", {"ssl.truststore.location": "/no"})
    with pytest.raises(ConfigError, match=r"sasl\.jaas\.config: there is no setting"):
        reader_of("https://h/keys", {"ssl.truststore.loction": "/no"})


def test_an_endpoint_that_comes_later_is_asked_again() -> None:
    clock, offload = HandClock(), HeldOffload()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        port = server.server_port
    found = Jwks(f"http://127.0.0.1:{port}/keys", TIMES, clock, offload)
    assert len(found.keys) == 0
    with ThreadingHTTPServer(("127.0.0.1", port), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        clock.advance(100)
        server.shutdown()
        thread.join()
    assert len(found.keys) == 1
    clock.advance(60_000)
    assert len(found.keys) == 1


def test_listeners_share_a_set_only_with_the_same_authority(tmp_path: Path) -> None:
    Authority(tmp_path, "one")
    Authority(tmp_path, "two")
    prefix = "listener.name.{}.oauthbearer.sasl."
    settings = {}
    for listener, store in (("a", "one"), ("b", "two"), ("c", "one")):
        here = prefix.format(listener)
        settings[f"{here}oauthbearer.jwks.endpoint.url"] = "https://127.0.0.1:1/keys"
        settings[f"{here}jaas.config"] = (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            f'ssl.truststore.location="{tmp_path / store}.pem";'
        )
    tokens = BearerTokens(HandClock(), HeldOffload())
    config = BrokerConfig(settings)
    for listener in ("a", "b", "c"):
        tokens.validator(config, listener)
    assert len(tokens._sets) == 2
    tokens.close()
