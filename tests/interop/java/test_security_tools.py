"""Kafka's tools for rules, users, quotas and tokens over SASL_SSL, every subcommand of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.interop.java.conftest import KafkaTools
from tests.interop.secured.site import SecuredBroker

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

ROOT, ROOT_PASSWORD = "root", "root's secret"
ANN_PASSWORD = "secret-of-ann"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
JAAS = (
    f'{PLAIN} required user_{ROOT}="{ROOT_PASSWORD}" user_ann="{ANN_PASSWORD}" '
    f'user_bob="secret-of-bob";'
)

Run = Callable[..., str]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {
        "super.users": f"User:ANONYMOUS;User:{ROOT}",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
    }
    with SecuredBroker(tmp_path_factory.mktemp("secured"), settings) as process:
        yield process


def reach(
    broker: SecuredBroker, directory: Path, jaas: str, mechanism: str = "PLAIN"
) -> tuple[str, ...]:
    """Write the settings of a client; return the arguments by which a tool uses them."""
    file = directory / f"{mechanism}-{abs(hash(jaas))}.properties"
    file.write_text(
        "security.protocol=SASL_SSL\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={broker.authority.path}\n"
        f"sasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n"
    )
    address = f"127.0.0.1:{broker.ports['SASL_SSL']}"
    return ("--bootstrap-server", address, "--command-config", str(file))


def by_password(
    broker: SecuredBroker, directory: Path, name: str, password: str
) -> tuple[str, ...]:
    jaas = f'{PLAIN} required username="{name}" password="{password}";'
    return reach(broker, directory, jaas)


@pytest.fixture
def as_root(broker: SecuredBroker, tmp_path: Path) -> tuple[str, ...]:
    return by_password(broker, tmp_path, ROOT, ROOT_PASSWORD)


@pytest.fixture
def as_ann(broker: SecuredBroker, tmp_path: Path) -> tuple[str, ...]:
    return by_password(broker, tmp_path, "ann", ANN_PASSWORD)


def test_kafka_acls(tools: KafkaTools, as_root: tuple[str, ...], as_ann: tuple[str, ...]) -> None:
    def acls(*words: str) -> str:
        return tools.run("kafka-acls", *as_root, *words)

    def rules(text: str) -> set[tuple[str, str]]:
        return set(re.findall(r"principal=(\S+), host=\S+, operation=(\w+)", text))

    ann = ("--allow-principal", "User:ann")
    acls("--add", *ann, "--producer", "--idempotent", "--topic", "made", "--transactional-id", "x")
    acls("--add", *ann, "--consumer", "--topic", "made", "--group", "readers")
    told = acls("--list", "--topic", "made")
    assert rules(told) == {("User:ann", each) for each in ("WRITE", "CREATE", "DESCRIBE", "READ")}
    assert rules(acls("--list", "--group", "readers")) == {("User:ann", "READ")}
    about_id = rules(acls("--list", "--transactional-id", "x"))
    assert about_id == {("User:ann", "WRITE"), ("User:ann", "DESCRIBE")}
    assert rules(acls("--list", "--cluster")) == {("User:ann", "IDEMPOTENT_WRITE")}

    prefixed = ("--topic", "made-", "--resource-pattern-type", "prefixed")
    bob = ("--deny-principal", "User:bob", "--deny-host", "10.0.0.1")
    told = acls("--add", *bob, "--operation", "All", *prefixed)
    expected = "(principal=User:bob, host=10.0.0.1, operation=ALL, permissionType=DENY)"
    assert expected in told
    assert "patternType=PREFIXED" in told
    matching = ("--list", "--topic", "made-1", "--resource-pattern-type", "match")
    assert rules(acls(*matching)) == {("User:bob", "ALL")}
    both = ("--operation", "CreateTokens", "--operation", "DescribeTokens")
    acls("--add", *ann, *both, "--user-principal", "User:bob")
    told = acls("--list", "--user-principal", "User:bob")
    assert rules(told) == {("User:ann", "CREATE_TOKENS"), ("User:ann", "DESCRIBE_TOKENS")}
    acls("--add", *ann, "--operation", "Describe", "--delegation-token", "some-id")
    assert rules(acls("--list", "--delegation-token", "some-id")) == {("User:ann", "DESCRIBE")}
    mine = acls("--list", "--principal", "User:bob")
    assert rules(mine) == {("User:bob", "ALL")}

    acls("--remove", "--force", *ann, "--operation", "Write", "--topic", "made")
    assert ("User:ann", "WRITE") not in rules(acls("--list", "--topic", "made"))
    for resource in (
        ("--topic", "made"),
        prefixed,
        ("--group", "readers"),
        ("--transactional-id", "x"),
        ("--user-principal", "User:bob"),
        ("--delegation-token", "some-id"),
    ):
        acls("--remove", "--force", *resource)
    assert rules(acls("--list")) == {("User:ann", "IDEMPOTENT_WRITE")}
    acls("--remove", "--force", "--cluster")
    assert rules(acls("--list")) == set()

    for words in (("--list",), ("--add", *ann, "--operation", "Read", "--topic", "t")):
        told = tools.refused("kafka-acls", *as_ann, *words)
        assert "ClusterAuthorizationException" in told, told


def test_kafka_configs(
    tools: KafkaTools, broker: SecuredBroker, as_root: tuple[str, ...], as_ann: tuple[str, ...]
) -> None:
    def configs(*words: str) -> str:
        return tools.run("kafka-configs", *as_root, *words)

    entities = {
        "user-principal 'zoe'": ("--entity-type", "users", "--entity-name", "zoe"),
        "the default user-principal": ("--entity-type", "users", "--entity-default"),
        "client-id 'c'": ("--entity-type", "clients", "--entity-name", "c"),
        "the default client-id": ("--entity-type", "clients", "--entity-default"),
        "user-principal 'zoe', client-id 'c'": (
            *("--entity-type", "users", "--entity-name", "zoe"),
            *("--entity-type", "clients", "--entity-name", "c"),
        ),
    }
    values = "producer_byte_rate=1024,consumer_byte_rate=2048,request_percentage=50"
    more = ",controller_mutation_rate=3"
    shown = ("producer_byte_rate=1024.0", "consumer_byte_rate=2048.0", "request_percentage=50.0")
    for name, words in entities.items():
        configs("--alter", *words, "--add-config", values + more)
        told = configs("--describe", *words)
        (line,) = [each for each in told.splitlines() if f"configs for {name} are" in each]
        assert all(each in line for each in (*shown, "controller_mutation_rate=3.0")), told
        configs("--alter", *words, "--delete-config", "request_percentage")
        assert "request_percentage" not in configs("--describe", *words)
    told = configs("--describe", "--entity-type", "users")
    assert "'zoe'" in told
    assert "the default user-principal" in told

    for words, name in (
        (("--entity-type", "ips", "--entity-name", "10.0.0.1"), "ip '10.0.0.1'"),
        (("--entity-type", "ips", "--entity-default"), "the default ip"),
    ):
        configs("--alter", *words, "--add-config", "connection_creation_rate=5")
        told = configs("--describe", *words)
        assert f"configs for {name} are connection_creation_rate=5.0" in told, told
        configs("--alter", *words, "--delete-config", "connection_creation_rate")
        assert "connection_creation_rate" not in configs("--describe", *words)

    of_zoe = ("--entity-type", "users", "--entity-name", "zoe")
    credentials = "SCRAM-SHA-256=[password=zoes],SCRAM-SHA-512=[iterations=8192,password=zoes]"
    for each in credentials.split(",SCRAM"):
        text = each if each.startswith("SCRAM") else f"SCRAM{each}"
        configs("--alter", *of_zoe, "--add-config", text)
    told = configs("--describe", *of_zoe)
    assert "SCRAM-SHA-256=iterations=4096" in told
    assert "SCRAM-SHA-512=iterations=8192" in told
    configs("--alter", *of_zoe, "--delete-config", "SCRAM-SHA-256")
    assert "SCRAM-SHA-256" not in configs("--describe", *of_zoe)

    told = tools.refused(
        "kafka-configs", *as_ann, "--alter", *of_zoe, "--add-config", "request_percentage=1"
    )
    assert "ClusterAuthorizationException" in told, told


def test_kafka_delegation_tokens(
    tools: KafkaTools, broker: SecuredBroker, tmp_path: Path, as_ann: tuple[str, ...]
) -> None:
    def tokens(*words: str) -> str:
        return tools.run("kafka-delegation-tokens", *as_ann, *words)

    created = tokens("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    match = re.search(r"^(?P<id>[0-9a-f-]{36})\s+(?P<hmac>\S+)\s+User:ann", created, re.MULTILINE)
    assert match is not None, created
    described = tokens("--describe", "--owner-principal", "User:ann")
    assert match["id"] in described
    assert "User:bob" in described
    hmac = ("--hmac", match["hmac"])

    as_bob = by_password(broker, tmp_path, "bob", "secret-of-bob")
    renewed = tools.run(
        "kafka-delegation-tokens", *as_bob, "--renew", "--renew-time-period", "-1", *hmac
    )
    assert "Completed renew operation" in renewed

    jaas = f'{SCRAM} required username="{match["id"]}" password="{match["hmac"]}" tokenauth="true";'
    as_token = reach(broker, tmp_path, jaas, "SCRAM-SHA-256")
    listed = tools.run("kafka-topics", *as_token, "--list")
    assert listed.strip() == ""  # ann may see no topic; her token lets her in
    told = tools.refused(
        "kafka-delegation-tokens", *as_token, "--create", "--max-life-time-period", "-1"
    )
    assert "Delegation Token requests are not allowed" in told

    expired = tokens("--expire", "--expiry-time-period", "-1", *hmac)
    assert "Completed expire operation" in expired
    assert match["id"] not in tokens("--describe")
    told = tools.refused("kafka-topics", *as_token, "--list")
    assert "invalid credentials with SASL mechanism SCRAM-SHA-256" in told
