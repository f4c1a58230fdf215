"""Our clients at a broker process of ours with TLS and SASL: every mechanism, every API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.tls_authority import Authority
from tests.unit.security.sasl.tokens import jwks, key, signed

from millstream.cli.main import main
from millstream.client import Admin, Consumer, Producer, ShareConsumer, aio
from millstream.client.cluster import Cluster
from millstream.client.core.admin.access import ScramMechanism
from millstream.client.core.admin.topics import NewTopic
from millstream.client.core.settings import ClientSettings, read_settings
from millstream.client.errors import AuthenticationError, ClientError, TlsError
from millstream.client.fetch import Fetcher
from millstream.client.security import open_security
from millstream.client.settings import ClientSettings as BlockingSettings
from millstream.client.settings import parse_bootstrap_servers
from millstream.model.topic import TopicPartition
from millstream.records.record import read_records

pytestmark = pytest.mark.system

SECRET = "hunter2, = \\ 'quoted'"
ADMIN_SECRET = "admin-hunter2"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="admin" password="{ADMIN_SECRET}" user_admin="{ADMIN_SECRET}";'
)
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
SESSION_MS = 2_500
WAYS = [*MECHANISMS, "certificate"]


def token() -> str:
    now = int(time.time())
    return signed(key("RSA", "one"), aud="kafka", iat=now, exp=now + 600, sub="ann")


@dataclass
class Site:
    """Two brokers: one wants SASL, the other a certificate of the client."""

    broker: BrokerProcess
    mutual: BrokerProcess
    authority: Authority

    def settings(self, way: str) -> dict[str, object]:
        """Return the settings of a client that is let in."""
        given: dict[str, object] = {
            "bootstrap.servers": self.broker.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(self.authority.path),
            "sasl.mechanism": way,
        }
        if way == "certificate":
            store = str(self.authority.directory / "ann.both.pem")
            return {
                "bootstrap.servers": self.mutual.bootstrap,
                "security.protocol": "SSL",
                "ssl.truststore.location": str(self.authority.path),
                "ssl.keystore.location": store,
            }
        if way == "OAUTHBEARER":
            return given | {"sasl.oauth.token": token}
        if way == "PLAIN":
            return given | {"sasl.username": "admin", "sasl.password": ADMIN_SECRET}
        return given | {"sasl.username": "ann", "sasl.password": SECRET}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    authority = Authority(tmp_path_factory.mktemp("ca"))
    authority.issue("broker", ["127.0.0.1"])
    authority.issue("ann")
    directory = tmp_path_factory.mktemp("broker")
    keys = directory / "keys.json"
    keys.write_bytes(jwks(key("RSA", "one")))
    tls = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.directory / "broker.both.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.path),
        "inter.broker.listener.name": "PLAINTEXT",
    }
    sasl = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
        "connections.max.reauth.ms": str(SESSION_MS),
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
    }
    mutual = {"listener.security.protocol.map": "PLAINTEXT:SSL", "ssl.client.auth": "required"}
    with (
        BrokerProcess(directory, tls | sasl) as broker,
        BrokerProcess(tmp_path_factory.mktemp("mutual"), tls | mutual) as other,
    ):
        found = Site(broker, other, authority)
        with Admin(found.settings("PLAIN")) as admin:
            for mechanism in ScramMechanism:
                admin.alter_user_scram_credentials({"ann": SECRET}, mechanism=mechanism).get_all()
        yield found


@pytest.mark.parametrize("way", WAYS)
def test_records_go_there_and_back_by_a_group(site: Site, way: str) -> None:
    given = site.settings(way)
    topic = f"t-{way}".lower()
    with Admin(given) as admin:
        admin.create_topics([NewTopic(topic, 2, 1)]).get_all()
    with Producer({**given, "max.request.size": 2 << 20}) as producer:
        futures = [producer.send(topic, b"%d" % number) for number in range(1_000)]
        futures.append(producer.send(topic, b"x" * (900 << 10)))
        for future in futures:
            future.result(60)
    values: list[bytes | None] = []
    reading = {**given, "group.id": f"g-{topic}", "auto.offset.reset": "earliest"}
    with Consumer(reading) as consumer:
        consumer.subscribe([topic])
        while len(values) < 1_001:
            values += [each.value for each in consumer.poll(30)]
        consumer.commit()
    assert len(set(values)) == 1_001


@pytest.mark.parametrize("way", WAYS)
def test_the_asyncio_clients(site: Site, way: str) -> None:
    given = site.settings(way)
    topic = f"asyncio-{way}".lower()

    async def run() -> list[bytes | None]:
        async with aio.Producer(given) as producer:
            await (await producer.send(topic, b"1"))
        async with aio.Consumer({**given, "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            values: list[bytes | None] = []
            while not values:
                values += [each.value for each in await consumer.poll(10)]
            return values

    assert asyncio.run(run()) == [b"1"]


@pytest.mark.parametrize("way", WAYS)
def test_the_fetcher_of_spark(site: Site, way: str) -> None:
    given = site.settings(way)
    topic = f"fetched-{way}".lower()
    with Producer({**given, "max.request.size": 2 << 20}) as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number * 100_000, partition=0)
    security = open_security(read_settings(ClientSettings, given))
    addresses = parse_bootstrap_servers(str(given["bootstrap.servers"]))
    values = []
    with Cluster(BlockingSettings(bootstrap_servers=addresses, security=security)) as cluster:
        fetcher = Fetcher(cluster, {TopicPartition(topic, 0): 0})
        while len(values) < 20:
            for fetched in fetcher.poll():
                for batch in fetched.batches():
                    values += [bytes(each.value or b"") for each in read_records(batch)]
        fetcher.close()
    assert values == [b"%d" % number * 100_000 for number in range(20)]


def test_transactions_and_a_share_group(site: Site) -> None:
    given = site.settings("SCRAM-SHA-512")
    with Producer({**given, "transactional.id": "tx"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("transacted", b"dropped")
        producer.flush()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send("transacted", b"kept")
        producer.commit_transaction()
    with ShareConsumer({**given, "group.id": "sharing"}) as consumer:
        consumer.subscribe("transacted")
        values: list[bytes | None] = []
        with Producer(given) as producer:
            while not values:
                producer.send("transacted", b"again")
                values += [each.value for each in consumer.poll(1)]
    assert values


@pytest.mark.long
@pytest.mark.parametrize("way", MECHANISMS)
def test_sessions_are_renewed_while_records_flow(site: Site, way: str) -> None:
    given = site.settings(way)
    topic = f"renewed-{way}".lower()
    end = time.monotonic() + 2.2 * SESSION_MS / 1000
    with Producer(given) as producer, Consumer({**given, "auto.offset.reset": "earliest"}) as one:
        producer.send(topic, b"0").result(60)
        one.assign([TopicPartition(topic, 0)])
        one.seek(TopicPartition(topic, 0), 0)
        sent, read = 1, 0
        while time.monotonic() < end:
            producer.send(topic, b"%d" % sent).result(60)
            sent += 1
            read += len(one.poll(0.05))
        while read < sent:
            read += len(one.poll(10))
    assert read == sent


@pytest.mark.parametrize("way", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password(site: Site, way: str) -> None:
    admin = Admin({**site.settings(way), "sasl.password": "hush"})
    with admin, pytest.raises(AuthenticationError) as caught:
        admin.list_topics()
    assert "could not authenticate at the broker" in str(caught.value)
    assert "hush" not in str(caught.value) + site.broker.log


def test_a_client_without_a_certificate(site: Site) -> None:
    given = site.settings("certificate")
    del given["ssl.keystore.location"]
    admin = Admin({**given, "default.api.timeout.ms": 3000})
    with admin, pytest.raises(TlsError, match=r"ssl\.keystore\.location"):
        admin.list_topics()


def test_a_client_without_tls(site: Site) -> None:
    given = {"bootstrap.servers": site.broker.bootstrap, "default.api.timeout.ms": 3000}
    with Admin(given) as admin, pytest.raises(ClientError, match="TLS only"):
        admin.list_topics()


def test_commands_are_given_settings(
    site: Site, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = site.settings("SCRAM-SHA-256")
    monkeypatch.setenv("MILLSTREAM_CLIENT_SASL_PASSWORD", SECRET)
    del given["sasl.password"]
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    reach = ["--command-config", str(file)]
    assert main(["topic", "create", "commanded", *reach]) == 0
    with Producer({**given, "sasl.password": SECRET}) as producer:
        producer.send("commanded", b"hello").result(60)
    for words in (["-e"], ["-G", "by-command", "-c", "1"]):
        assert main(["consume", "commanded", *words, *reach]) == 0
        assert capfd.readouterr().out.endswith("hello\n")
    assert main(["group", "describe", "by-command", *reach]) == 0
    assert main(["topic", "list", *reach, "-X", "sasl.username=nobody"]) == 1
