"""Settings of Apache Kafka 4.3 that a broker of Millstream accepts and reports but does not act on.

A ``server.properties`` that sets them is taken as it is, and tools that read them find Kafka's
defaults. One line each: type, name, default, then the limits, ``*`` where Kafka changes the
setting for all brokers while they run, ``+`` where it does so broker by broker, and ``internal``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from millstream.config.definition import CLUSTER_WIDE, PER_BROKER, READ_ONLY, ConfigKey
from millstream.config.validators import Range
from millstream.config.value import ConfigType, parse_value

DOC: Final = "A setting of Apache Kafka that Millstream accepts, reports, and does not act on."

TABLE: Final = """
boolean remote.log.storage.system.enable = false
string remote.log.storage.manager.impl.prefix = rsm.config.
string remote.log.metadata.manager.impl.prefix = rlmm.config.
string remote.log.storage.manager.class.name = null
string remote.log.storage.manager.class.path = null
string remote.log.metadata.manager.class.name = org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
string remote.log.metadata.manager.class.path = null
string remote.log.metadata.manager.listener.name = null
int remote.log.metadata.custom.metadata.max.bytes = 128 [0,]
long remote.log.index.file.cache.total.size.bytes = 1073741824 [1,] *
long remote.log.index.file.cache.ttl.ms = 900000 [-1,] internal
int remote.log.manager.thread.pool.size = 2 [1,]
int remote.log.manager.copier.thread.pool.size = 10 [1,] *
int remote.log.manager.expiration.thread.pool.size = 10 [1,] *
int remote.log.manager.follower.thread.pool.size = 2 [1,] *
long remote.log.manager.task.interval.ms = 30000 [1,]
long remote.log.manager.task.retry.backoff.ms = 500 [1,] internal
long remote.log.manager.task.retry.backoff.max.ms = 30000 [1,] internal
double remote.log.manager.task.retry.jitter = 0.2 [0, 0.5] internal
int remote.log.reader.threads = 10 [1,] *
int remote.log.reader.max.pending.tasks = 100 [1,]
long remote.log.manager.copy.max.bytes.per.second = 9223372036854775807 [1,] *
int remote.log.manager.copy.quota.window.num = 11 [1,]
int remote.log.manager.copy.quota.window.size.seconds = 1 [1,]
long remote.log.manager.fetch.max.bytes.per.second = 9223372036854775807 [1,] *
int remote.log.manager.fetch.quota.window.num = 11 [1,]
int remote.log.manager.fetch.quota.window.size.seconds = 1 [1,]
int remote.fetch.max.wait.ms = 500 [1,] *
long remote.list.offsets.request.timeout.ms = 30000 [1,] *
int num.io.threads = 8 [1,] *
int num.replica.alter.log.dirs.threads = null
int background.threads = 10 [1,] *
long socket.connection.setup.timeout.ms = 10000
long socket.connection.setup.timeout.max.ms = 30000
list config.providers = "" *
list early.start.listeners = null
boolean unstable.api.versions.enable = false internal
boolean unstable.feature.versions.enable = false internal
int initial.broker.registration.timeout.ms = 60000
int broker.heartbeat.interval.ms = 2000
int broker.session.timeout.ms = 9000
string sasl.mechanism.controller.protocol = GSSAPI
long controller.performance.sample.period.ms = 60000 [100,] internal
long controller.performance.always.log.threshold.ms = 2000 [0,] internal
long server.max.startup.time.ms = 9223372036854775807 [0,] internal
long metadata.log.max.record.bytes.between.snapshots = 20971520 [1,]
long metadata.log.max.snapshot.interval.ms = 3600000 [0,]
int metadata.log.segment.bytes = 1073741824 [8388608,]
long metadata.log.segment.ms = 604800000
long metadata.max.retention.bytes = 104857600
long metadata.max.retention.ms = 604800000
int metadata.max.idle.interval.ms = 500 [0,]
int internal.metadata.log.segment.bytes = null internal
int internal.metadata.max.batch.size.in.bytes = 8388608 internal
long internal.metadata.delete.delay.millis = 60000 internal
int queued.max.requests = 500 [1,]
int num.network.threads = 3 [1,] *
int controller.socket.timeout.ms = 30000
int replica.socket.receive.buffer.bytes = 65536
int num.replica.fetchers = 1 [1,] *
int fetch.purgatory.purge.interval.requests = 1000
int producer.purgatory.purge.interval.requests = 1000
int delete.records.purgatory.purge.interval.requests = 1
long unclean.leader.election.interval.ms = 300000 [1,] internal
boolean follower.fetch.last.tiered.offset.enable = false *
int group.coordinator.threads = 4 [1,]
int group.coordinator.background.threads = 2 [1,]
int group.coordinator.append.linger.ms = -1 [-1,]
int offsets.load.buffer.size = 5242880 [1,]
int group.coordinator.cached.buffer.max.bytes = 1048588 [524288,] *
list group.share.assignors = simple
int group.streams.session.timeout.ms = 45000 [1,]
int group.streams.min.session.timeout.ms = 45000 [1,]
int group.streams.max.session.timeout.ms = 60000 [1,]
int group.streams.heartbeat.interval.ms = 5000 [1,]
int group.streams.min.heartbeat.interval.ms = 5000 [1,]
int group.streams.max.heartbeat.interval.ms = 15000 [1,]
int group.streams.max.size = 2147483647 [1,]
int group.streams.num.standby.replicas = 0 [0,]
int group.streams.max.standby.replicas = 2 [0,]
int group.streams.initial.rebalance.delay.ms = 3000 [0,]
int group.streams.assignment.interval.ms = 1000 [0,] *
int group.streams.min.assignment.interval.ms = 0 [0,]
int group.streams.max.assignment.interval.ms = 15000 [0,]
class create.topic.policy.class.name = null
class alter.config.policy.class.name = null
long log.dir.failure.timeout.ms = 30000 [1,]
int share.fetch.purgatory.purge.interval.requests = 1000
string group.share.persister.class.name = org.apache.kafka.server.share.persister.DefaultStatePersister internal
int share.coordinator.threads = 1 [1,]
int share.coordinator.load.buffer.size = 5242880 [1,]
int share.coordinator.append.linger.ms = -1 [-1,]
int share.coordinator.cached.buffer.max.bytes = 1048588 [524288,] *
int transaction.state.log.load.buffer.size = 5242880 [1,]
boolean transaction.two.phase.commit.enable = false
list controller.quorum.voters = ""
list controller.quorum.bootstrap.servers = ""
int controller.quorum.election.timeout.ms = 1000 [0,]
int controller.quorum.fetch.timeout.ms = 2000 [0,]
int controller.quorum.election.backoff.max.ms = 1000 [0,]
int controller.quorum.append.linger.ms = 25 [0,]
int controller.quorum.request.timeout.ms = 2000 [0,]
int controller.quorum.retry.backoff.ms = 20 [0,]
boolean controller.quorum.auto.join.enable = false
int controller.quorum.fetch.snapshot.max.bytes = 1048576 [1,]
int controller.quorum.fetch.max.bytes = 1048576 [1,]
int metrics.num.samples = 2 [1,]
long metrics.sample.window.ms = 30000 [1,]
list metric.reporters = org.apache.kafka.common.metrics.JmxReporter *
string metrics.recording.level = INFO
list kafka.metrics.reporters = ""
int kafka.metrics.polling.interval.secs = 10 [1,]
int alter.log.dirs.replication.quota.window.num = 11 [1,]
int alter.log.dirs.replication.quota.window.size.seconds = 1 [1,]
class client.quota.callback.class = null
string security.providers = null
class principal.builder.class = org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder +
string ssl.provider = null +
string ssl.keymanager.algorithm = SunX509 +
string ssl.trustmanager.algorithm = PKIX +
string ssl.secure.random.implementation = null +
class ssl.engine.factory.class = null +
list sasl.kerberos.principal.to.local.rules = DEFAULT +
class sasl.client.callback.handler.class = null
class sasl.login.class = null
string sasl.kerberos.service.name = null +
string sasl.kerberos.kinit.cmd = /usr/bin/kinit +
double sasl.kerberos.ticket.renew.window.factor = 0.8 +
double sasl.kerberos.ticket.renew.jitter = 0.05 +
long sasl.kerberos.min.time.before.relogin = 60000 +
class sasl.oauthbearer.jwt.validator.class = org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
string sasl.oauthbearer.assertion.algorithm = RS256
string sasl.oauthbearer.assertion.claim.aud = null
int sasl.oauthbearer.assertion.claim.exp.seconds = 300 [0, 86400]
string sasl.oauthbearer.assertion.claim.iss = null
boolean sasl.oauthbearer.assertion.claim.jti.include = false
int sasl.oauthbearer.assertion.claim.nbf.seconds = 60 [0, 3600]
string sasl.oauthbearer.assertion.claim.sub = null
string sasl.oauthbearer.assertion.file = null
string sasl.oauthbearer.assertion.private.key.file = null
password sasl.oauthbearer.assertion.private.key.passphrase = null
string sasl.oauthbearer.assertion.template.file = null
"""  # noqa: E501 - as Kafka prints it

_LINE: Final = (
    r"(?P<type>\w+) (?P<name>\S+) = (?P<default>[^\s\[]*)"
    r"(?: \[(?P<low>[-\d]+),(?: ?(?P<high>[-\d.]+))?\])?"
    r"(?: (?P<mode>[*+]))?(?P<internal> internal)?\Z"
)
_MODES: Final = {"*": CLUSTER_WIDE, "+": PER_BROKER, None: READ_ONLY}

_OLDER: Final = """
advertised.host.name advertised.port broker.id.generation.enable control.plane.listener.name
controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms delegation.token.master.key
eligible.leader.replicas.enable group.coordinator.new.enable host.name
inter.broker.protocol.version log.message.downconversion.enable log.message.format.version
log.message.timestamp.difference.max.ms offsets.commit.required.acks
password.encoder.cipher.algorithm password.encoder.iterations password.encoder.key.length
password.encoder.keyfactory.algorithm password.encoder.old.secret password.encoder.secret port
reserved.broker.max.id zookeeper.clientCnxnSocket
zookeeper.max.in.flight.requests
zookeeper.metadata.migration.enable zookeeper.metadata.migration.min.batch.size
zookeeper.set.acl
"""

OLDER_NAMES: Final = frozenset(_OLDER.split())
"""Settings of older Kafka versions, which people still have in their files."""

FREE_PREFIXES: Final = (
    "confluent.",
    "config.providers.",
    "kafka.metrics.",
    "listener.name.",
    "metrics.",
    "rlmm.config.",
    "rsm.config.",
    "sasl.",
    "ssl.",
    "zookeeper.ssl.",
)
"""Beginnings of names that plug-ins of Kafka define as they like."""


@cache
def accepted_keys() -> Mapping[str, ConfigKey]:
    """Return the table as keys by name, in Kafka's order."""
    return {key.name: key for key in _read_table()}


def _read_table() -> Iterator[ConfigKey]:
    pattern = re.compile(_LINE)  # here, and not at import: many starts need no row of the table
    for line in TABLE.strip().splitlines():
        row = pattern.match(line)
        assert row is not None, line
        kind = ConfigType[row["type"].upper()]
        text = row["default"].strip('"')
        default = None if text == "null" else parse_value(kind, "", text)
        limits = None
        if row["low"] is not None:
            limits = Range(int(row["low"]), _bound(row["high"]))
        yield ConfigKey(
            row["name"],
            kind,
            default,
            limits,
            DOC,
            mode=_MODES[row["mode"]],
            internal=row["internal"] is not None,
            effective=False,
        )


def _bound(text: str | None) -> int | float | None:
    if text is None:
        return None
    return float(text) if "." in text else int(text)
