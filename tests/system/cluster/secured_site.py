"""Three brokers with everything on: TLS, SCRAM, rules, node ACLs in a real ZooKeeper.

Clients come by SASL_SSL and SCRAM-SHA-512, brokers by SSL with certificates of their own; nobody is
a super user but the brokers. The first user and the first rules are therefore made with a broker's
certificate, on the listener between brokers.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.broker_process import BrokerProcess
from tests.system.cluster.watched import QUICK
from tests.tls_authority import Authority
from tests.waiting import wait_until
from tests.zookeeper_server import ensemble

from millstream.zookeeper.embedded import free_port

IDS: Final = (1, 2, 3)
SCRAM_512: Final = "SCRAM-SHA-512"
DIGEST: Final = "broker:between-sesame"
REAUTHENTICATE_MS: Final = 10_000
"""A client authenticates again when nine tenths of it are over; who is late is disconnected."""
SECRETS: Final = "sesame"
"""A part of every password: it must not stand in a log."""
HOSTS: Final = ("localhost", "127.0.0.1")
PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
JAAS_OF_BROKERS: Final = "listener.name.brokers.plain.sasl.jaas.config"


def broker_credentials(password: str) -> str:
    """Return the JAAS text of a broker that gives this password, and takes the right one."""
    return f'{PLAIN_MODULE} username="broker" password="{password}" user_broker="between-sesame";'


PLAIN_BETWEEN_BROKERS: Final = {
    "listener.security.protocol.map": "CLIENTS:SASL_SSL,BROKERS:SASL_SSL",
    "listener.name.brokers.ssl.client.auth": "none",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    JAAS_OF_BROKERS: broker_credentials("between-sesame"),
    "listener.name.clients.plain.sasl.jaas.config": f'{PLAIN_MODULE} user_admin="admin-sesame";',
    "super.users": "User:broker;User:admin",
}
"""Brokers and ``admin`` have passwords, PLAIN over TLS, and no certificates of clients."""


class SecuredBroker(BrokerProcess):
    """A broker with one listener for clients and one for brokers."""

    def __init__(self, directory: Path, number: int, settings: Mapping[str, str]) -> None:
        super().__init__(directory, settings)
        self.number = number
        self.brokers_port = free_port()

    @property
    def bootstrap(self) -> str:
        return f"localhost:{self.port}"

    def command(self) -> list[str]:
        listeners = f"CLIENTS://127.0.0.1:{self.port},BROKERS://127.0.0.1:{self.brokers_port}"
        settings = {
            **self.settings,
            "node.id": str(self.number),
            "listeners": listeners,
            "advertised.listeners": listeners.replace("127.0.0.1", "localhost"),
        }
        overrides = [f"--override={name}={value}" for name, value in settings.items()]
        program = [sys.executable, "-m", "millstream.cli.main", "serve"]
        return [*program, "--data-dir", str(self.data_directory), *overrides]


class SecuredCluster:
    """``with SecuredCluster(directory) as cluster:`` starts ZooKeeper and the brokers."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.authority = Authority(directory)
        self.passwords: dict[str, str] = {}
        self._ensemble = ensemble(directory / "zookeeper")
        self._settings = {
            "zookeeper.connect": self._ensemble.connect,
            "zookeeper.auth.digest": DIGEST,
            "zookeeper.set.acl": "true",
            "zookeeper.session.timeout.ms": "6000",
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,BROKERS:SSL",
            "inter.broker.listener.name": "BROKERS",
            "ssl.keystore.type": "PEM",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.path),
            "listener.name.brokers.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": SCRAM_512,
            "connections.max.reauth.ms": str(REAUTHENTICATE_MS),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": ";".join(f"User:CN=broker-{number}" for number in IDS),
            "offsets.topic.replication.factor": "3",
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.num.partitions": "3",
            "group.initial.rebalance.delay.ms": "0",
            "replica.lag.time.max.ms": "10000",
            "log.flush.policy": "os",
            **(settings or {}),
        }
        self.brokers: dict[int, SecuredBroker] = {}

    def __enter__(self) -> SecuredCluster:
        self._ensemble.__enter__()
        try:
            for number in IDS:
                for listener in ("clients", "brokers"):
                    self.issue(number, listener)
                stores = {
                    f"listener.name.{listener}.ssl.keystore.location": str(
                        self.key_store(number, listener)
                    )
                    for listener in ("clients", "brokers")
                }
                broker = SecuredBroker(
                    self.directory / f"broker-{number}", number, {**self._settings, **stores}
                )
                self.brokers[number] = broker
                broker.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill what runs."""
        for broker in self.brokers.values():
            if broker.is_running:
                broker.kill()
        self._ensemble.__exit__(None, None, None)

    def logs(self) -> str:
        """Return the ends of the brokers' logs."""
        return "\n".join(f"--- {key}\n{each.log[-4000:]}" for key, each in self.brokers.items())

    def __getitem__(self, number: int) -> SecuredBroker:
        return self.brokers[number]

    @property
    def zookeeper(self) -> str:
        return self._ensemble.connect

    @property
    def bootstrap(self) -> str:
        return ",".join(each.bootstrap for each in self.brokers.values())

    # --- certificates ----------------------------------------------------------------------------

    def key_store(self, number: int, listener: str) -> Path:
        """Return where the key store of a broker's listener lies."""
        return self.directory / f"{listener}-{number}.pem"

    def issue(
        self,
        number: int,
        listener: str,
        *,
        seconds: float | None = None,
        path: Path | None = None,
    ) -> datetime:
        """Write a new certificate of a broker into its key store, or another file, in one step;
        return when it ends. ``seconds`` is how long it is valid from now.
        """
        day = timedelta(days=1)
        life = 30 * day if seconds is None else day + timedelta(seconds=seconds)
        ends = datetime.now(UTC) - day + life
        self.authority.issue(f"broker-{number}", HOSTS, age=day, life=life)
        made = self.directory / f"broker-{number}.both.pem"
        made.replace(path or self.key_store(number, listener))
        return ends

    def hang_up(self, numbers: Sequence[int] = IDS) -> None:
        """Have brokers read their key stores again."""
        for number in numbers:
            self[number].process.send_signal(signal.SIGHUP)

    # --- clients ---------------------------------------------------------------------------------

    def of_broker(self, number: int = 1) -> dict[str, Any]:
        """Return the settings of a program that has a broker's certificate."""
        return self.of_certificate(f"broker-{number}")

    def of_certificate(self, name: str, at: int | None = None) -> dict[str, Any]:
        """Return the settings of librdkafka for who has a certificate of the cluster's authority,
        on the listener between brokers: of all of them, or of one.
        """
        self.authority.issue(name)
        ports = [self[each].brokers_port for each in (IDS if at is None else (at,))]
        return {
            **QUICK,
            "bootstrap.servers": ",".join(f"localhost:{port}" for port in ports),
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority.path),
            "ssl.certificate.location": str(self.directory / f"{name}.crt.pem"),
            "ssl.key.location": str(self.directory / f"{name}.key.pem"),
        }

    def of_user(self, name: str, password: str | None = None) -> dict[str, Any]:
        """Return the settings of librdkafka for a user."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.path),
            "sasl.mechanism": SCRAM_512,
            "sasl.username": name,
            "sasl.password": password or self.passwords[name],
        }

    def of_our_user(self, name: str, password: str | None = None) -> dict[str, Any]:
        """Return the settings of Millstream's client for a user."""
        given = self.of_user(name, password)
        given["ssl.truststore.location"] = given.pop("ssl.ca.location")
        return given

    def admin(self, name: str = "admin") -> AdminClient:
        """Return an administrator's client."""
        return AdminClient({**QUICK, **self.of_user(name)})

    def lets_in(self, number: int, name: str, password: str | None = None) -> bool:
        """Tell whether a broker lets a user in, by a connection of its own."""
        given = {**self.of_user(name, password), "bootstrap.servers": self[number].bootstrap}
        try:
            AdminClient({**given, "log_level": 0}).list_topics(timeout=3)
        except KafkaException:
            return False
        return True


def set_password(admin: AdminClient, name: str, password: str) -> None:
    """Give a user a password."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(name, info, password.encode())
    admin.alter_user_scram_credentials([change])[name].result(30)


def rule(
    name: str, operation: str, kind: str = "TOPIC", *, of: str, prefix: bool = False
) -> AclBinding:
    """Return a rule that allows a user one operation on what is called ``of``."""
    return AclBinding(
        ResourceType[kind],
        of,
        ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL,
        f"User:{name}",
        "*",
        AclOperation[operation],
        AclPermissionType.ALLOW,
    )


def allow(admin: AdminClient, *rules: AclBinding) -> None:
    """Add rules."""
    for outcome in admin.create_acls(list(rules)).values():
        outcome.result(30)


def revoke(admin: AdminClient, *rules: AclBinding) -> None:
    """Delete rules."""
    filters = [
        AclBindingFilter(
            each.restype,
            each.name,
            each.resource_pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for each in rules
    ]
    for outcome in admin.delete_acls(filters).values():
        assert len(outcome.result(30)) == 1


def alter_broker(admin: AdminClient, number: int, name: str, value: str) -> None:
    """Change a setting of one broker, by a request to that broker."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, str(number), incremental_configs=[entry])
    (outcome,) = admin.incremental_alter_configs([resource]).values()
    outcome.result(30)


def in_sync(admin: AdminClient, *topics: str) -> bool:
    """Tell whether every replica of these topics is in sync."""
    try:
        known = admin.list_topics(timeout=5).topics
    except KafkaException:
        return False
    return all(
        topic in known
        and known[topic].partitions
        and all(set(each.isrs) == set(IDS) for each in known[topic].partitions.values())
        for topic in topics
    )


def until_in_sync(admin: AdminClient, *topics: str) -> None:
    """Wait until every replica of these topics is in sync."""
    wait_until(lambda: in_sync(admin, *topics), f"all replicas of {topics} in sync")


def eventually(attempt: Callable[[], bool], what: str) -> None:
    """Wait until something is so; errors of the client count as not yet."""

    def holds() -> bool:
        try:
            return attempt()
        except KafkaException:
            return False

    wait_until(holds, what)
