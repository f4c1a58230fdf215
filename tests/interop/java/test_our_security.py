"""Our clients against Apache Kafka with TLS and SASL: mechanisms, APIs, sessions, refusals."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench.peers.kafka import KafkaNode, find_kafka, free_port
from tests.interop.kafka_cluster import SMALL_JVM
from tests.tls_authority import Authority

from millstream.cli.main import main
from millstream.client import Admin, Consumer, Producer, ShareConsumer, aio
from millstream.client.cluster import Cluster
from millstream.client.core.admin.access import ScramMechanism
from millstream.client.core.admin.topics import NewTopic
from millstream.client.core.settings import ClientSettings, read_settings
from millstream.client.errors import AuthenticationError, ConnectionFailedError, TlsError
from millstream.client.fetch import Fetcher
from millstream.client.security import open_security
from millstream.client.settings import ClientSettings as BlockingSettings
from millstream.client.settings import parse_bootstrap_servers
from millstream.model.topic import TopicPartition
from millstream.records.record import read_records

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

PACKAGE = "org.apache.kafka.common.security"
PLAIN_MODULE = f"{PACKAGE}.plain.PlainLoginModule required"
OAUTH_MODULE = f"{PACKAGE}.oauthbearer.OAuthBearerLoginModule required"
SESSION_MS = 2_500
LISTENERS = {"SECURE": "SASL_SSL", "MUTUAL": "SSL", "BARE": "SASL_PLAINTEXT", "SHORT": "SASL_SSL"}


class SecuredNode(KafkaNode):
    """A node with a listener for each way in; SHORT ends sessions after some seconds."""

    def __init__(self, directory: Path, authority: Authority) -> None:
        authority.issue("kafka", ["127.0.0.1"])
        self.ports = {name: free_port() for name in LISTENERS}
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **LISTENERS}
        settings = {
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in protocols.items()
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.directory / "kafka.both.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.path),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "group.share.enable": "true",
        }
        scram = f"{PACKAGE}.scram.ScramLoginModule required;"
        for name in ("secure", "bare", "short"):
            prefix = f"listener.name.{name}"
            settings |= {
                f"{prefix}.plain.sasl.jaas.config": f'{PLAIN_MODULE} user_ann="secret";',
                f"{prefix}.scram-sha-256.sasl.jaas.config": scram,
                f"{prefix}.scram-sha-512.sasl.jaas.config": scram,
                f"{prefix}.oauthbearer.sasl.jaas.config": f"{OAUTH_MODULE};",
            }
        super().__init__(find_kafka(), directory, settings=settings, jvm_flags=SMALL_JVM)

    def prepare(self) -> None:
        """Add the listeners to those of a plain node."""
        super().prepare()
        added = "".join(f",{name}://{self.host}:{port}" for name, port in self.ports.items())
        lines = self._properties.read_text(encoding="utf-8").splitlines()
        extended = [
            line + added if line.startswith(("listeners=", "advertised.listeners=")) else line
            for line in lines
        ]
        self._properties.write_text("\n".join(extended) + "\n", encoding="utf-8")

    def at(self, listener: str) -> str:
        """Return the address of a listener."""
        return f"{self.host}:{self.ports[listener]}"


@dataclass
class Site:
    node: SecuredNode
    authority: Authority

    def settings(self, mechanism: str = "", listener: str = "SECURE") -> dict[str, str]:
        """Return the settings of a client that is let in."""
        protocol = LISTENERS[listener]
        found = {"bootstrap.servers": self.node.at(listener), "security.protocol": protocol}
        if "SSL" in protocol:
            found["ssl.truststore.location"] = str(self.authority.path)
        if listener == "MUTUAL":
            found["ssl.keystore.location"] = str(self.authority.directory / "ann.both.pem")
        elif mechanism == "OAUTHBEARER":
            found["sasl.mechanism"] = mechanism
            found["sasl.jaas.config"] = f'{OAUTH_MODULE} unsecuredLoginStringClaim_sub="ann";'
        else:
            found["sasl.mechanism"] = mechanism
            found["sasl.username"], found["sasl.password"] = "ann", "secret"
        return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    authority = Authority(tmp_path_factory.mktemp("ca"))
    authority.issue("ann")
    with SecuredNode(tmp_path_factory.mktemp("kafka"), authority) as node:
        with Admin(bootstrap_servers=node.bootstrap) as admin:
            for mechanism in ScramMechanism:
                admin.alter_user_scram_credentials({"ann": "secret"}, mechanism=mechanism).get_all()
        yield Site(node, authority)


WAYS = [
    ("PLAIN", "SECURE"),
    ("SCRAM-SHA-256", "SECURE"),
    ("SCRAM-SHA-512", "SECURE"),
    ("OAUTHBEARER", "SECURE"),
    ("", "MUTUAL"),
    ("SCRAM-SHA-256", "BARE"),
]


@pytest.mark.parametrize(("mechanism", "listener"), WAYS)
def test_records_go_there_and_back_by_a_group(site: Site, mechanism: str, listener: str) -> None:
    given = site.settings(mechanism, listener)
    topic = f"t-{mechanism}-{listener}".lower()
    with Admin(given) as admin:
        admin.create_topics([NewTopic(topic, 2, 1)]).get_all()
    with Producer({**given, "compression.type": "zstd", "max.request.size": 2 << 20}) as producer:
        futures = [producer.send(topic, b"%d" % number) for number in range(1_000)]
        futures.append(producer.send(topic, b"x" * (900 << 10)))
        for future in futures:
            future.result(60)
    values = read_all(given, topic, 1_001)
    assert sorted(values, key=len)[-1] == b"x" * (900 << 10)
    assert len(set(values)) == 1_001


def read_all(given: dict[str, str], topic: str, count: int) -> list[bytes | None]:
    reading = {**given, "group.id": f"g-{topic}", "auto.offset.reset": "earliest"}
    values: list[bytes | None] = []
    with Consumer(reading) as consumer:
        consumer.subscribe([topic])
        while len(values) < count:
            values += [each.value for each in consumer.poll(30)]
        consumer.commit()
    return values


def test_transactions(site: Site) -> None:
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
    assert read_all({**given, "isolation.level": "read_committed"}, "transacted", 1) == [b"kept"]


def test_the_asyncio_clients(site: Site) -> None:
    given = site.settings("SCRAM-SHA-256")

    async def run() -> list[bytes | None]:
        async with aio.Producer(given) as producer:
            await (await producer.send("with-asyncio", b"1"))
        async with aio.Consumer({**given, "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([TopicPartition("with-asyncio", 0)])
            values: list[bytes | None] = []
            while not values:
                values += [each.value for each in await consumer.poll(10)]
            return values

    assert asyncio.run(run()) == [b"1"]


def test_a_share_group(site: Site) -> None:
    given = site.settings("SCRAM-SHA-256")
    with Producer(given) as producer:
        producer.send("shared", b"1").result(60)
    with Admin(given) as admin, ShareConsumer({**given, "group.id": "sharing"}) as consumer:
        consumer.subscribe("shared")
        values: list[bytes | None] = []
        deadline = time.monotonic() + 60
        with Producer(given) as producer:
            while not values and time.monotonic() < deadline:
                values += [each.value for each in consumer.poll(1)]
                producer.send("shared", b"2")
        assert values
        assert "sharing" in {each.group for each in admin.list_groups()}


def test_the_fetcher_of_spark(site: Site) -> None:
    given = site.settings("SCRAM-SHA-256")
    with Producer({**given, "max.request.size": 2 << 20}) as producer:
        for number in range(20):
            producer.send("fetched", b"%d" % number * 100_000, partition=0)
    security = open_security(read_settings(ClientSettings, given))
    addresses = parse_bootstrap_servers(given["bootstrap.servers"])
    values = []
    with Cluster(BlockingSettings(bootstrap_servers=addresses, security=security)) as cluster:
        fetcher = Fetcher(cluster, {TopicPartition("fetched", 0): 0})
        while len(values) < 20:
            for fetched in fetcher.poll():
                for batch in fetched.batches():
                    values += [bytes(each.value or b"") for each in read_records(batch)]
        fetcher.close()
    assert values == [b"%d" % number * 100_000 for number in range(20)]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_sessions_are_renewed_while_records_flow(site: Site, mechanism: str) -> None:
    given = site.settings(mechanism, "SHORT")
    topic = f"renewed-{mechanism}".lower()
    end = time.monotonic() + 3 * SESSION_MS / 1000
    sent = 0
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


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password(site: Site, mechanism: str) -> None:
    given = {**site.settings(mechanism), "sasl.password": "hush-hush"}
    with Admin(given) as admin, pytest.raises(AuthenticationError) as caught:
        admin.list_topics()
    assert "credentials" in str(caught.value) or "password" in str(caught.value)
    assert "hush" not in str(caught.value)


def test_a_listener_without_sasl(site: Site) -> None:
    given = site.settings("PLAIN", "BARE")
    admin = Admin({**given, "bootstrap.servers": site.node.bootstrap})
    with admin, pytest.raises(AuthenticationError, match="expects no SASL on this listener"):
        admin.list_topics()


def test_a_listener_that_wants_a_certificate(site: Site) -> None:
    given = site.settings("", "MUTUAL")
    del given["ssl.keystore.location"]
    admin = Admin({**given, "default.api.timeout.ms": "5000"})
    with admin, pytest.raises((TlsError, ConnectionFailedError)) as caught:
        admin.list_topics()
    assert "ssl.keystore.location" in str(caught.value)


def test_an_authority_that_is_not_trusted(site: Site, tmp_path: Path) -> None:
    other = Authority(tmp_path, "another authority")
    given = {**site.settings("PLAIN"), "ssl.truststore.location": str(other.path)}
    with Admin(given) as admin, pytest.raises(TlsError, match="not signed by a trusted authority"):
        admin.list_topics()


def test_a_client_without_tls_at_a_listener_with_it(site: Site) -> None:
    settings = {"bootstrap.servers": site.node.at("SECURE"), "default.api.timeout.ms": "5000"}
    with Admin(settings) as admin, pytest.raises(TlsError, match="speaks TLS only"):
        admin.list_topics()


def test_a_client_with_tls_at_a_listener_without_it(site: Site) -> None:
    given = {**site.settings("PLAIN"), "bootstrap.servers": site.node.bootstrap}
    admin = Admin({**given, "default.api.timeout.ms": "3000"})
    with admin, pytest.raises(ConnectionFailedError, match="its listener may have no TLS"):
        admin.list_topics()


def test_tls_1_2_alone(site: Site) -> None:
    with Admin({**site.settings("PLAIN"), "ssl.enabled.protocols": "TLSv1.2"}) as admin:
        admin.list_topics()
    context = ssl.create_default_context(cafile=site.authority.path)
    given: dict[str, object] = dict(site.settings("PLAIN"))
    del given["ssl.truststore.location"]
    with Admin({**given, "ssl.context": context}) as admin:
        admin.list_topics()


# --- the command ---------------------------------------------------------------------------------


def test_commands_take_a_file_of_settings(
    site: Site, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD_OF_ANN", "secret")
    file = tmp_path / "client.properties"
    given = {**site.settings("SCRAM-SHA-256"), "sasl.password": "${env:PASSWORD_OF_ANN}"}
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    reach = ["--command-config", str(file)]
    assert main(["topic", "create", "commanded", "-p", "3", *reach]) == 0
    assert main(["topic", "describe", "commanded", "--json", *reach]) == 0
    assert "commanded" in capfd.readouterr().out
    assert main(["topic", "list", *reach, "-X", "sasl.password=hush"]) == 1
    said = capfd.readouterr().err
    assert "could not authenticate at the broker" in said
    assert "hush" not in said


# --- Spark ---------------------------------------------------------------------------------------


@pytest.mark.spark
def test_spark_reads_and_writes_and_shows_no_secret(
    site: Site, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from millstream.spark import session

    given = site.settings("SCRAM-SHA-512")
    module = f"{PACKAGE}.scram.ScramLoginModule required"
    del given["sasl.username"], given["sasl.password"]
    given["sasl.jaas.config"] = f'{module} username="ann" password="secret";'
    options = {f"kafka.{name}": value for name, value in given.items()}
    started = session(
        "secure",
        master="local[2]",
        settings={
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.local.dir": str(tmp_path / "local"),
            "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": str(tmp_path),
            "spark.eventLog.compress": "false",
        },
    )
    try:
        numbers = started.range(500).selectExpr("cast(id as string) as value")
        numbers.write.format("millstream").mode("append").options(**options).option(
            "topic", "by-spark"
        ).save()
        frame = (
            started.read.format("millstream")
            .options(**options)
            .option("subscribe", "by-spark")
            .load()
        )
        assert frame.count() == 500
        frame.explain(extended=True)
        stream = started.readStream.format("millstream").options(**options)
        query = (
            stream.option("subscribe", "by-spark")
            .option("startingOffsets", "earliest")
            .load()
            .selectExpr("value")
            .writeStream.format("millstream")
            .options(**options)
            .option("topic", "by-a-stream")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        query.explain(extended=True)
        wrong = {**options, "kafka.sasl.jaas.config": f'{module} username="ann" password="hush";'}
        with pytest.raises(Exception, match="could not authenticate") as caught:
            started.read.format("millstream").options(**wrong).option(
                "subscribe", "by-spark"
            ).load().count()
        assert "hush" not in str(caught.value)
    finally:
        started.stop()
    read = read_all({**given, "isolation.level": "read_committed"}, "by-a-stream", 500)
    assert len(read) == 500
    shown = capfd.readouterr()
    texts = [shown.out, shown.err, repr(frame), repr(query)]
    texts += [
        path.read_text(encoding="utf-8", errors="replace")
        for path in tmp_path.rglob("*")
        if path.is_file() and path.suffix not in (".crc", ".jar")
    ]
    assert "RelationV2" in texts[0] or "Scan" in texts[0]
    for text in texts:
        assert 'password="secret"' not in text
        assert "hush" not in text
