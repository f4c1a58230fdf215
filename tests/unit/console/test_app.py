"""The console's answers without a cluster: files, protection, refusals, endpoints of the pages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from millstream.console import decoding, reading
from millstream.console.app import STATIC, create_app
from millstream.console.options import ConsoleOptions

CLIENT = {
    "bootstrap.servers": "127.0.0.1:1",
    "default.api.timeout.ms": 1000,
    "request.timeout.ms": 500,
}


def console(*, allows_writes: bool = False, log_directories: tuple[Path, ...] = ()) -> TestClient:
    options = ConsoleOptions(
        client=CLIENT, allows_writes=allows_writes, log_directories=log_directories
    )
    return TestClient(create_app(options), base_url="http://127.0.0.1")


@pytest.fixture
def client() -> Iterator[TestClient]:
    with console() as found:
        yield found


def test_every_file_is_served(client: TestClient) -> None:
    wrong = [
        path.name
        for path in STATIC.rglob("*")
        if path.is_file()
        and client.get(f"/static/{path.relative_to(STATIC).as_posix()}").content
        != path.read_bytes()
    ]
    assert wrong == []
    assert client.get("/").text.startswith("<!doctype html>")


def test_a_page_may_load_nothing_from_elsewhere_and_stands_in_no_frame(client: TestClient) -> None:
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


def test_another_name_of_the_host_is_refused(client: TestClient) -> None:
    assert client.get("/", headers={"host": "evil.example"}).status_code == 400


def test_every_endpoint_that_a_page_asks_exists() -> None:
    asked = {
        re.sub(r"\$\{part\(\w+\)\}", "x", address)
        for address in re.findall(
            r"[\"`](/api/[^\"`]*?)(?:\$\{parameters\([^`]*)?[\"`]",
            (STATIC / "js/api.js").read_text(),
        )
    }
    assert len(asked) > 12
    app = create_app(ConsoleOptions(client=CLIENT))
    routes = [each for each in app.routes if isinstance(each, Route)]
    missing = {
        address
        for address in asked
        if not any(
            each.path_regex.match(
                re.sub(r"x$", "0", address)
                if "/log/" in address or "/replicas/" in address
                else address
            )
            for each in routes
        )
    }
    assert missing == set()


def test_what_fails_says_what_where_and_what_next(client: TestClient) -> None:
    answer = client.get("/api/overview")
    assert answer.status_code == 502
    assert set(answer.json()["error"]) == {"what", "where", "next"}
    assert all(answer.json()["error"].values())


@pytest.mark.parametrize("path", ["/api/topics/orders/records", "/api/groups/readers/reset"])
def test_nothing_is_changed_unless_allowed(client: TestClient, path: str) -> None:
    answer = client.post(path, json={}, headers={"x-millstream-console": "1"})
    assert answer.status_code == 403
    assert answer.json()["error"]["next"] == "Start it with --allow-writes."


@pytest.mark.parametrize("path", ["/api/topics/orders/records", "/api/groups/readers/reset"])
def test_a_change_that_another_site_could_send_is_refused(path: str) -> None:
    with console(allows_writes=True) as client:
        assert client.post(path, json={}).status_code == 403


@pytest.mark.parametrize(
    "query", ["filter=open(1)", "from=middle", "partition=-1", "limit=x", "decoder=xml"]
)
def test_a_wrong_question_is_refused_before_the_cluster_is_asked(
    client: TestClient, query: str
) -> None:
    assert client.get(f"/api/topics/orders/records?{query}").status_code == 400


def test_a_partition_that_is_not_on_this_machine_says_how_to_show_it(client: TestClient) -> None:
    answer = client.get("/api/log/orders/0")
    assert answer.status_code == 404
    assert "--log-dir" in answer.json()["error"]["what"]


@pytest.mark.parametrize("name", ["..%2F..%2Fetc", "%2Fetc", "..", "a%00b"])
def test_a_name_that_leaves_the_log_directory_is_no_partition(name: str, tmp_path: Path) -> None:
    inside = tmp_path / "logs"
    inside.mkdir()
    (tmp_path / "secret-0").mkdir()
    with console(log_directories=(inside,)) as client:
        assert client.get(f"/api/log/{name}/0").status_code in (400, 404)
        assert client.get("/api/log/..%2Fsecret/0").status_code in (400, 404)


def test_records_that_are_odd_do_not_fail_the_page(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [b'{"a": "\\ud800"}', b"[1e999]", b"[" * 190 + b"]" * 190, b"[" * 985 + b"]" * 985]

    def read(*_: object) -> dict[str, object]:
        return {"records": [{"value": decoding.content(value, "auto")} for value in values]}

    monkeypatch.setattr(reading, "read", read)
    answer = client.get("/api/topics/t/records")
    assert answer.status_code == 200
    kinds = [each["value"]["kind"] for each in answer.json()["records"]]
    assert kinds == ["json", "text", "json", "text"]


@pytest.mark.parametrize("field", ["key", "value", "headers"])
def test_text_that_cannot_be_sent_is_refused(field: str) -> None:
    record: dict[str, object] = {"value": "x"}
    record[field] = [{"name": "n", "value": "\ud800"}] if field == "headers" else "\ud800"
    with console(allows_writes=True) as writing:
        answer = writing.post(
            "/api/topics/t/records",
            content=json.dumps(record),
            headers={"x-millstream-console": "1"},
        )
    assert answer.status_code == 400
    assert "surrogate" in answer.json()["error"]["what"]
