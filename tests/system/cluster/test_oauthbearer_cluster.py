"""Brokers that authenticate to each other with tokens of an endpoint: replaced before they end,
while sessions are renewed, and while the endpoint is away for a time.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.system.cluster_site import ClusterSite
from tests.unit.security.sasl.tokens import jwks, key, signed
from tests.waiting import wait_until

from millstream.client import Admin, Consumer, Producer
from millstream.client.core.admin.topics import NewTopic

pytestmark = pytest.mark.system

LIFETIME_S = 8
SECRET = "endpoint-hunter2"
CLIENTS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="ann-hunter2";'
OAUTH = "listener.name.plaintext.oauthbearer."


class Endpoint:
    """An endpoint of tokens that can be taken away."""

    def __init__(self) -> None:
        self.given: Counter[str] = Counter()
        self.is_down = False
        endpoint = self

        class Answers(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                name, _, secret = (
                    base64.b64decode(self.headers["Authorization"].removeprefix("Basic "))
                    .decode()
                    .partition(":")
                )
                if endpoint.is_down or secret != SECRET:
                    self.send_error(503 if endpoint.is_down else 401)
                    return
                now = int(time.time())
                token = signed(key("EC", "one"), "ES256", sub=name, iat=now, exp=now + LIFETIME_S)
                endpoint.given[name] += 1
                body = json.dumps({"access_token": token, "expires_in": LIFETIME_S}).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    yield endpoint
    endpoint.close()


@pytest.fixture
def cluster(tmp_path: Path, endpoint: Endpoint) -> Iterator[ClusterSite]:
    keys = tmp_path / "keys.json"
    keys.write_bytes(jwks(key("EC", "one")))
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "listener.name.plaintext.plain.sasl.jaas.config": CLIENTS,
        f"{OAUTH}sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer."
        "OAuthBearerLoginModule required;",
        f"{OAUTH}sasl.login.callback.handler.class": "org.apache.kafka.common.security."
        "oauthbearer.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": endpoint.url,
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ann;User:broker-1;User:broker-2;User:broker-3",
    }
    with ClusterSite(tmp_path, brokers=0, settings=settings) as cluster:
        for broker_id in (1, 2, 3):
            own = {"sasl.oauthbearer.client.credentials.client.id": f"broker-{broker_id}"}
            cluster.add(broker_id, own).start()
        yield cluster


def options(cluster: ClusterSite) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": "ann-hunter2",
    }


@pytest.mark.long
def test_brokers_authenticate_with_tokens_that_are_replaced(
    cluster: ClusterSite, endpoint: Endpoint
) -> None:
    with Admin(options(cluster)) as admin:
        admin.create_topics([NewTopic("t", partitions=3, replication_factor=3)])
    names = [f"broker-{broker_id}" for broker_id in cluster.brokers]
    sent = 0
    with Producer({**options(cluster), "acks": "all"}) as producer:

        def produce() -> None:
            nonlocal sent
            producer.send("t", str(sent).encode()).result(60)
            sent += 1

        def all_replaced(times: int) -> bool:
            produce()
            return all(endpoint.given[name] >= times for name in names)

        wait_until(lambda: all_replaced(4), "each broker to have its fourth token")

        # Away for less than what is left of a token: nobody notices.
        endpoint.is_down = True
        until = time.monotonic() + 0.15 * LIFETIME_S
        while time.monotonic() < until:
            produce()
        endpoint.is_down = False
        before = max(endpoint.given.values())
        wait_until(lambda: all_replaced(before + 1), "tokens after the endpoint is back")

        killed = cluster.brokers[1]
        killed.kill()
        for _ in range(20):
            produce()
        killed.start()
        wait_until(lambda: all_replaced(before + 2), "tokens after a start")

    with Consumer(options(cluster), auto_offset_reset="earliest", group_id="g") as consumer:
        consumer.subscribe(["t"])
        seen: set[bytes] = set()

        def read() -> bool:
            seen.update(bytes(record.value) for record in consumer.poll(1) if record.value)
            return len(seen) == sent

        wait_until(read, "every record")
    for broker in cluster.brokers.values():
        assert "hunter2" not in broker.log
        assert "not let in" not in broker.log
