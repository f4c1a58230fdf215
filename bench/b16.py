"""B16: what TLS costs: throughput, CPU for each byte, handshakes."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bench.load import tls
from bench.load.raw import FETCH_BATCH_BYTES, FETCH_RECORD_BYTES
from bench.load.report import LoadReport
from bench.load.tls import TlsSpec
from bench.metrics import CPU_PER_MB, CPU_PER_REQUEST, MB_PER_S, REQUESTS_PER_S
from bench.pairs import KAFKA, MILLSTREAM, Measure, Row, Target
from bench.peers.kafka import KafkaFailedError, KafkaInstall, KafkaNode, free_port
from bench.peers.millstream import serve_command
from bench.peers.server_process import ServerProcess
from bench.session import Session
from bench.stage import BROKER_SETTINGS, Broker, Stage, run_load, run_module
from bench.tables import Section, cpu_table, throughput_table
from bench.work import RawProduce
from millstream.security.certificates import Authority

FETCH_TOPIC = "bench-fetch"
FETCH_BATCHES = 2_048  # of 16,384 bytes: 34 MB in each partition
CONNECTIONS = 4
CONDITIONS = (
    "one broker, TLS 1.3, TLS_AES_256_GCM_SHA384, the same certificate (ECDSA, P-256) for both; "
    "the broker is filled and its topics are made over a second listener without TLS",
    "clients: Python's ssl, a thread for each connection, up to 5 requests in flight, acks=1; "
    "every byte is decrypted. The client takes as much CPU as the broker: CPU says more",
    "handshakes: full ones, without a client certificate, four at a time, each connection closed "
    "after it",
    "Millstream log.flush.policy=os, Apache Kafka its default; page cache hot",
)


class Encrypted:
    """A broker with a plain listener, for what is around a run, and one with TLS."""

    def __init__(self, broker: Broker, tls_port: int, trust: Path) -> None:
        self.broker = broker
        self.tls_port = tls_port
        self.trust = trust


class TlsKafka(KafkaNode):
    """Apache Kafka with a third listener."""

    def __init__(self, install: KafkaInstall, directory: Path, keystore: Path) -> None:
        self.port = self._controller_port = 0
        super().__init__(install, directory)
        self.port, self._controller_port = free_port(), free_port()
        self.tls_port = free_port()
        plain, secure = (
            f"PLAINTEXT://127.0.0.1:{self.port}",
            f"SSL://127.0.0.1:{self.tls_port}",
        )
        self._settings = {
            **BROKER_SETTINGS,
            "listeners": f"{plain},{secure},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": f"{plain},{secure}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keystore),
        }


def run(session: Session) -> list[Section]:
    """Run the rows that `--only` leaves."""
    with ExitStack() as stack:
        brokers = _brokers(session.stage, stack)
        rows = _rows(session.stage, brokers)
        results = session.run(rows, warm_up=partial(_warm, session, brokers))
    return [
        throughput_table("B16 · TLS", results),
        cpu_table("B16 · TLS, CPU of the broker", results),
    ]


def _brokers(stage: Stage, stack: ExitStack) -> dict[str, Encrypted]:
    directory = stage.directory / "tls"
    directory.mkdir()
    now = datetime.now(UTC)
    authority = Authority.make("bench", now=now, days=2)
    signed = authority.server(("localhost", "127.0.0.1"), now=now, days=2)
    keystore, trust = directory / "server.pem", directory / "trust.pem"
    keystore.write_bytes(signed.key_pem() + signed.chain_pem)
    trust.write_bytes(authority.trust_pem)
    brokers = {}
    if stage.install is not None:
        kafka = TlsKafka(stage.install, directory / "kafka", keystore)
        stack.callback(kafka.stop)
        try:
            brokers[KAFKA] = Encrypted(Broker(kafka.start()), kafka.tls_port, trust)
        except KafkaFailedError as error:
            stage.kafka_absent = str(error)
    port = free_port()
    settings = {
        **BROKER_SETTINGS,
        "listeners": f"PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:{port}",
        "log.flush.policy": "os",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
    }
    overrides = [f"--override={name}={value}" for name, value in settings.items()]
    command = [*serve_command(), "--data-dir", str(directory / "millstream"), *overrides]
    ours = ServerProcess(command, directory / "millstream.out")
    stack.callback(ours.stop)
    brokers[MILLSTREAM] = Encrypted(Broker(ours.start()), port, trust)
    return brokers


def _rows(stage: Stage, brokers: dict[str, Encrypted]) -> list[Row]:
    cases = (
        # kind, name, bytes, requests
        ("produce", "17 KB", 17_000, 12_000),
        ("produce", "930 KB", 930_000, 400),
        ("fetch", "64 KB", 1 << 16, 8_000),
        ("fetch", "1 MB", 1 << 20, 800),
    )
    found = []
    for kind, name, size, requests in cases:
        for connections in (1, CONNECTIONS):
            spec = TlsSpec(
                kind, 0, (), connections, stage.options.scaled(requests) // connections, "", size
            )
            plural = "connection" if connections == 1 else "connections"
            found.append(
                Row(
                    f"TLS {kind} {name}, {connections} {plural}",
                    _on(stage, brokers, spec),
                    MB_PER_S,
                    CPU_PER_MB,
                    targets=(Target(KAFKA, 1.5 if connections == 1 else 1.0),),
                )
            )
    spec = TlsSpec("handshake", 0, (), CONNECTIONS, stage.options.scaled(2_000) // CONNECTIONS, "")
    found.append(Row("TLS handshakes", _on(stage, brokers, spec), REQUESTS_PER_S, CPU_PER_REQUEST))
    return found


def _on(stage: Stage, brokers: dict[str, Encrypted], spec: TlsSpec) -> dict[str, Measure]:
    return {name: partial(_load, stage, each, spec) for name, each in brokers.items()}


def _load(stage: Stage, encrypted: Encrypted, spec: TlsSpec) -> LoadReport:
    broker = encrypted.broker
    spec = replace(
        spec,
        port=encrypted.tls_port,
        broker_pids=(broker.node.pid,),
        trust=str(encrypted.trust),
    )
    if spec.kind == "handshake":
        return run_module("bench.load.tls", tls.to_json(spec))
    with broker.admin() as admin:
        if spec.kind == "produce":
            topic = stage.next_topic()
            admin.create_topic(topic, spec.connections, broker.topic_settings)
            report = run_module("bench.load.tls", tls.to_json(replace(spec, topic=topic)))
            admin.delete_topic(topic)
            return report
        if FETCH_TOPIC not in broker.filled:
            admin.create_topic(FETCH_TOPIC, CONNECTIONS, broker.topic_settings)
            requests = CONNECTIONS * FETCH_BATCHES
            fill = RawProduce(CONNECTIONS, FETCH_BATCH_BYTES, FETCH_RECORD_BYTES, requests)
            run_load(fill.spec(port=broker.node.port, pid=broker.node.pid, topic=FETCH_TOPIC))
            broker.filled.add(FETCH_TOPIC)
        topic_id = admin.topic_id(FETCH_TOPIC).hex()
    filled = replace(spec, topic=FETCH_TOPIC, topic_id=topic_id, batches=FETCH_BATCHES)
    return run_module("bench.load.tls", tls.to_json(filled))


def _warm(session: Session, brokers: dict[str, Encrypted]) -> None:
    """Let the JVM compile what is measured."""
    session.say("warming up")
    for encrypted in brokers.values():
        for kind, size in (("produce", 17_000), ("fetch", 1 << 16)):
            _load(session.stage, encrypted, TlsSpec(kind, 0, (), 2, 3_000, "", size))
