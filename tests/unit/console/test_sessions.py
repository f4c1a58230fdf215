"""Log-ins without a cluster: what is refused before and after the brokers are asked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from millstream.console.app import create_app
from millstream.console.options import ConsoleOptions
from millstream.console.problems import ProblemError
from millstream.console.sessions import Sessions
from millstream.model.errors import ConfigError

CLIENT = {
    "bootstrap.servers": "127.0.0.1:1",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "default.api.timeout.ms": 300,
    "request.timeout.ms": 200,
}
READS = [
    "/api/overview",
    "/api/topics",
    "/api/topics/t",
    "/api/topics/t/settings",
    "/api/topics/t/records",
    "/api/topics/t/tail",
    "/api/groups",
    "/api/groups/g",
    "/api/transactions",
    "/api/transactions/x",
    "/api/acls",
    "/api/tables",
    "/api/log/t/0",
    "/api/replicas/t/0",
]
PAGE = {"x-millstream-console": "1"}


@pytest.fixture
def client() -> Iterator[TestClient]:
    app = create_app(ConsoleOptions(client=CLIENT, login=True, allows_writes=True))
    with TestClient(app, base_url="http://127.0.0.1") as found:
        yield found


@pytest.mark.parametrize("path", READS)
def test_nothing_is_told_without_a_session(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 401
    assert answer.json()["error"]["what"] == "You are not logged in."


def test_the_list_has_every_endpoint() -> None:
    app = create_app(ConsoleOptions(client=CLIENT, login=True))
    paths = {each.path for each in app.routes if isinstance(each, Route)}
    told = {each for each in paths if each.startswith("/api/") and not each.endswith("/reset")}
    assert len(READS) == len(told - {"/api/session"})


@pytest.mark.parametrize("path", ["/api/topics/t/records", "/api/groups/g/reset"])
def test_nothing_is_changed_without_a_session(client: TestClient, path: str) -> None:
    assert client.post(path, json={}, headers=PAGE).status_code == 401


def test_who_is_not_logged_in_learns_nothing_of_the_cluster(client: TestClient) -> None:
    assert client.get("/api/session").json() == {"login": True, "user": None, "read_only": True}


def test_a_log_in_comes_from_the_page(client: TestClient) -> None:
    asked = {"user": "ann", "password": "x"}
    assert client.post("/api/session", json=asked).status_code == 403
    assert client.post("/api/session", json={"user": 1}, headers=PAGE).status_code == 400
    answer = client.post("/api/session", json=asked, headers=PAGE)
    assert answer.status_code == 502
    assert "set-cookie" not in answer.headers


def test_a_cookie_that_was_made_up_opens_nothing(client: TestClient) -> None:
    for cookie in ("", "x", "\u00e9" * 9, "a" * 4000):
        sent = f"millstream-console={cookie}".encode()
        found = client.get("/api/overview", headers={b"cookie": sent})
        assert found.status_code == 401


def test_who_fails_too_often_waits() -> None:
    now_s = [100.0]
    sessions = Sessions(CLIENT, lambda: now_s[0])

    def fail(peer: str) -> int:
        with pytest.raises(ProblemError) as refused:
            sessions.log_in("ann", "nul\0", peer)
        return refused.value.status

    statuses = [fail("10.0.0.1") for _ in range(6)]
    assert statuses == [401] * 5 + [429]
    assert fail("10.0.0.2") == 401
    now_s[0] += 61
    assert fail("10.0.0.1") == 401


@pytest.mark.parametrize(
    "settings",
    [
        {"security.protocol": "PLAINTEXT"},
        {"security.protocol": "SSL"},
        {"sasl.mechanism": "OAUTHBEARER"},
        {"sasl.mechanism": ""},
    ],
)
def test_a_log_in_needs_passwords_in_the_cluster(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="--login needs a listener"):
        create_app(ConsoleOptions(client={**CLIENT, **settings}, login=True))
