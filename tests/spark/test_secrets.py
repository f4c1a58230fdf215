"""Secrets in options of source and sink are in no plan, no event log and not in what the UI shows.

Spark itself writes the options of a data source into plans, and hides those whose names match
``spark.redaction.regex``, which :func:`millstream.spark.session` sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlparse

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit
from tests import certificates
from tests.tls_broker import TlsBroker

MARKER = "do-not-show-this"
CONTROL = "in-the-plan"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
LOGIN = f'{MODULE} required username="u" password="{MARKER}"'


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    users = {"listener.name.sasl_ssl.plain.sasl.jaas.config": f'{LOGIN} user_u="{MARKER}";'}
    settings = {
        **users,
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "security.inter.broker.protocol": "SASL_SSL",
    }
    broker = TlsBroker(tmp_path_factory.mktemp("broker"), settings, protocol="SASL_SSL")
    with broker:
        yield broker


@pytest.fixture(scope="module")
def options(secured: TlsBroker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The options of source and sink, with a key store that has a password."""
    certificate = certificates.client()
    key = load_pem_private_key(certificate.key_pem(), None)
    assert isinstance(key, EllipticCurvePrivateKey | RSAPrivateKey)
    [own, *others] = x509.load_pem_x509_certificates(certificate.chain_pem)
    store = tmp_path_factory.mktemp("client") / "client.p12"
    secret = BestAvailableEncryption(MARKER.encode())
    store.write_bytes(serialize_key_and_certificates(b"client", key, own, others, secret))
    return {
        "kafka.bootstrap.servers": secured.bootstrap,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f"{LOGIN};",
        "kafka.ssl.keystore.type": "PKCS12",
        "kafka.ssl.keystore.location": str(store),
        "kafka.ssl.keystore.password": MARKER,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(secured.trust),
    }


def shown_plans(spark: SparkSession) -> list[str]:
    """Return what the page SQL of the UI shows of each query."""
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    found = [executions.apply(number) for number in range(executions.size())]
    return [f"{each.description()}\n{each.physicalPlanDescription()}" for each in found]


def event_log(spark: SparkSession) -> str:
    """Return the events that were written so far."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    directory = Path(urlparse(str(spark.conf.get("spark.eventLog.dir"))).path)
    files = [path for path in directory.rglob("*") if path.is_file() and path.suffix != ".crc"]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def test_plans_and_events_hold_no_secret(
    spark: SparkSession,
    options: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = spark.createDataFrame([(b"a",), (b"b",)], "value binary")
    write = rows.write.format("millstream").options(**options, topic="secrets")
    write.mode("append").save()

    read = spark.read.format("millstream").options(**options, subscribe="secrets").load()
    seen = read.select("value", lit(CONTROL))
    seen.explain(True)
    assert len(seen.collect()) == 2

    stream = spark.readStream.format("millstream").options(
        **options, subscribe="secrets", startingOffsets="earliest"
    )
    sink = stream.load().select("value").writeStream.format("millstream")
    query = (
        sink.options(**options, topic="copies", checkpointLocation=str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(200)
    query.explain(True)

    events, plans, explained = event_log(spark), shown_plans(spark), capsys.readouterr().out
    for shown in (explained, events, "".join(plans)):
        assert CONTROL in shown, "what is in a plan is seen here"
    for shown in (explained, str(query.lastProgress), events, *plans):
        assert MARKER not in shown
