"""Where bearer tokens come from, how long one is used, and what is said when there is none."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.tls_authority import Authority
from tests.tls_peer import server_context
from tests.waiting import wait_until

from millstream.client.core.security_settings import SecuritySettings
from millstream.client.core.settings import ClientSettings, read_settings
from millstream.client.errors import AuthenticationError, ConnectionFailedError
from millstream.client.security import open_security
from millstream.client.tokens import TokenSource, expiry_of, extensions_of, open_source
from millstream.model.errors import ConfigError

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def jwt(claims: dict[str, object]) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return f"{part({'alg': 'none'})}.{part(claims)}.c2ln"


def settings(given: dict[str, object]) -> SecuritySettings:
    return read_settings(
        ClientSettings,
        {
            "bootstrap.servers": "h:1",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            **given,
        },
    )


def test_a_token_is_used_for_four_fifths_of_its_time() -> None:
    clock = Clock()
    calls: list[float] = []

    def fetch() -> tuple[str, float]:
        calls.append(clock.now)
        return f"token-{len(calls)}", clock.now + 100

    source = TokenSource(fetch, clock=clock)
    assert [source.token(), source.token()] == ["token-1", "token-1"]
    clock.now += 79
    assert source.token() == "token-1"
    clock.now += 2
    assert source.token() == "token-2"


def test_the_old_token_lasts_while_no_new_one_is_to_be_had() -> None:
    clock = Clock()
    failing = False

    def fetch() -> tuple[str, float]:
        if failing:
            raise ConnectionFailedError("nobody there")
        return "token", clock.now + 100

    source = TokenSource(fetch, clock=clock)
    source.token()
    failing = True
    clock.now += 90
    assert source.token() == "token"
    clock.now += 20
    with pytest.raises(ConnectionFailedError, match="nobody there"):
        source.token()


def test_the_end_of_a_jwt_is_read_from_it() -> None:
    clock = Clock()
    calls: list[bool] = []

    def fetch() -> str:
        calls.append(True)
        return jwt({"exp": 1100})

    source = TokenSource(fetch, clock=clock)
    source.token()
    source.token()
    assert len(calls) == 1


@pytest.mark.parametrize(
    "token", ["opaque", "a.b.c", "a.e30.c", jwt({"exp": "soon"}), jwt({}), "..", "a.W10.c"]
)
def test_a_token_that_tells_no_end_is_used_once(token: str) -> None:
    assert expiry_of(token) is None
    calls: list[bool] = []

    def fetch() -> str:
        calls.append(True)
        return token

    source = TokenSource(fetch)
    source.token()
    source.token()
    assert len(calls) == 2


@pytest.mark.parametrize("value", [None, "", "  ", 7, b"bytes", ("token", "soon"), ("token", 1)])
def test_what_is_no_token_is_refused(value: object) -> None:
    with pytest.raises(AuthenticationError, match="source of tokens"):
        TokenSource(lambda: value).token()


def test_a_function_that_raises_is_named_without_its_words() -> None:
    def fetch() -> str:
        raise ValueError("hush")

    with pytest.raises(AuthenticationError, match="raised ValueError") as caught:
        TokenSource(fetch).token()
    assert "hush" not in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)


def test_threads_share_one_fetch() -> None:
    calls: list[bool] = []

    def fetch() -> tuple[str, float]:
        calls.append(True)
        time.sleep(0.05)
        return "token", time.time() + 100

    source = TokenSource(fetch)
    threads = [threading.Thread(target=source.token) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1


# --- files and endpoints -------------------------------------------------------------------------


def test_a_file_is_read_anew_for_each_token(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    source = open_source(settings({"sasl.oauthbearer.token.endpoint.url": file.as_uri()}), {})
    with pytest.raises(ConnectionFailedError, match="No such file"):
        source.token()
    file.write_text("first\n")
    assert source.token() == "first"
    file.write_text("second\n")
    assert source.token() == "second"
    file.write_bytes(b"\xff")
    with pytest.raises(AuthenticationError, match="holds no token"):
        source.token()


class Endpoint(ThreadingHTTPServer):
    """Answers what ``answer`` says: a status, and an object or bytes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer: tuple[int, object] = (200, {"access_token": "token", "expires_in": 60})
        self.asked: list[tuple[str | None, dict[str, list[str]]]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/token"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Endpoint)
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append((self.headers["Authorization"], urllib.parse.parse_qs(body)))
        status, value = self.server.answer
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.end_headers()
        self.wfile.write(value if isinstance(value, bytes) else json.dumps(value).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def credentials(url: str, **more: object) -> SecuritySettings:
    given = {
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.credentials.client.id": "ann",
        "sasl.oauthbearer.client.credentials.client.secret": "hush",
    }
    return settings({**given, **more})


def test_client_credentials_are_sent_as_the_standard_says(endpoint: Endpoint) -> None:
    source = open_source(credentials(endpoint.url, **{"sasl.oauthbearer.scope": "read"}), {})
    assert [source.token(), source.token()] == ["token", "token"]
    ((authorization, form),) = endpoint.asked
    assert authorization == "Basic " + base64.b64encode(b"ann:hush").decode()
    assert form == {"grant_type": ["client_credentials"], "scope": ["read"]}


def test_javas_and_librdkafkas_names_are_taken(endpoint: Endpoint) -> None:
    options = {"clientId": "ann", "clientSecret": "hush", "scope": "read"}
    url = {"sasl.oauthbearer.token.endpoint.url": endpoint.url}
    assert open_source(settings(dict(url)), options).token() == "token"
    own = {"sasl.oauthbearer.client.id": "ann", "sasl.oauthbearer.client.secret": "hush"}
    assert open_source(settings({**url, **own}), {}).token() == "token"
    assert endpoint.asked[0][0] == endpoint.asked[1][0]


@pytest.mark.parametrize(
    ("status", "answer", "is_final", "words"),
    [
        (401, {"error": "invalid_client", "error_description": "who?"}, True, "invalid_client, wh"),
        (400, b"not JSON", True, "HTTP 400"),
        (503, {}, False, "HTTP 503"),
        (302, {}, False, "HTTP 302"),
        (200, {"token": "x"}, True, "answered with no token"),
        (200, b"not JSON", True, "answered with no token"),
        (200, {"access_token": "token", "expires_in": "soon"}, True, "answered with no token"),
    ],
)
def test_an_endpoint_that_gives_none(
    endpoint: Endpoint, status: int, answer: object, is_final: bool, words: str
) -> None:
    endpoint.answer = (status, answer)
    kind = AuthenticationError if is_final else ConnectionFailedError
    with pytest.raises(kind, match=words) as caught:
        open_source(credentials(endpoint.url), {}).token()
    assert "hush" not in str(caught.value)


def test_an_endpoint_that_is_away_may_come_back() -> None:
    with pytest.raises(ConnectionFailedError, match="no token from"):
        open_source(credentials("http://127.0.0.1:1/token"), {}).token()


def test_an_endpoint_has_to_be_trusted(endpoint: Endpoint, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = server_context(*authority.issue("endpoint", ["127.0.0.1"]))
    endpoint.socket = context.wrap_socket(endpoint.socket, server_side=True)
    url = endpoint.url.replace("http:", "https:")
    trusting = credentials(url, **{"https.ca.location": str(authority.path)})
    assert open_source(trusting, {}).token() == "token"
    with pytest.raises(AuthenticationError, match=r"https\.ca\.location"):
        open_source(credentials(url), {}).token()


def test_unsecured_tokens_are_for_trying_out() -> None:
    text = f'{MODULE} unsecuredLoginStringClaim_sub="ann" unsecuredLoginListClaim_scope=",a,b";'
    sasl = open_security(settings({"sasl.jaas.config": text})).sasl
    assert sasl is not None
    message = sasl.client().evaluate(None)
    payload = message.split(b".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + b"=" * (-len(payload) % 4)))
    assert claims["sub"] == "ann"
    assert claims["scope"] == ["a", "b"]
    assert claims["exp"] - claims["iat"] == 3600


def test_extensions_are_sent() -> None:
    given = settings({"sasl.oauthbearer.extensions": "logicalCluster=lkc-1, pool = p"})
    found = extensions_of(given, {"extension_traceId": "7"})
    assert found == {"logicalCluster": "lkc-1", "pool": "p", "traceId": "7"}
    with pytest.raises(ConfigError, match="NAME=VALUE"):
        extensions_of(settings({"sasl.oauthbearer.extensions": "x"}), {})


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        ({}, {}, "needs a source of tokens"),
        ({"sasl.oauthbearer.token.endpoint.url": "ftp://h/"}, {}, "takes https://"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://a:hush@h/"}, {}, "no place for cred"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://h/"}, {}, "client.id is missing"),
        (
            {"sasl.oauthbearer.token.endpoint.url": "https://h/"},
            {"clientId": "ann"},
            "client.secret is missing",
        ),
        (
            {"sasl.oauthbearer.token.endpoint.url": "https://h/", "sasl.oauth.token": print},
            {},
            "only one of",
        ),
        ({}, {"unsecuredLoginLifetimeSeconds": "1"}, "lacks the option"),
        (
            {},
            {"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginLifetimeSeconds": "x"},
            "whole number above 0",
        ),
    ],
)
def test_a_source_that_cannot_be_is_refused(
    given: dict[str, object], options: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        open_source(settings(given), options)
    assert "hush" not in str(caught.value)


def test_who_comes_while_a_fetch_hangs_uses_the_last_token_and_then_gives_up() -> None:
    returns = threading.Event()
    calls: list[int] = []
    now = [0.0]

    def fetch() -> tuple[str, float]:
        calls.append(1)
        if len(calls) > 1:
            returns.wait(30)
        return f"token-{len(calls)}", now[0] + 100

    source = TokenSource(fetch, clock=lambda: now[0], patience_s=0.05)
    assert source.token() == "token-1"
    now[0] = 90.0  # it is not fresh any more, and still valid
    hanging = threading.Thread(target=source.token, daemon=True)
    hanging.start()
    wait_until(lambda: len(calls) == 2, "the second fetch")
    assert source.token() == "token-1", "others do not notice"
    now[0] = 101.0
    with pytest.raises(ConnectionFailedError, match=r"sasl\.oauth\.token has not returned a token"):
        source.token()
    with pytest.raises(ConnectionFailedError, match="has not returned"):
        source.renew()
    assert len(calls) == 2, "one fetch at a time"
    returns.set()
    hanging.join(10)
    assert source.token() == "token-2"
