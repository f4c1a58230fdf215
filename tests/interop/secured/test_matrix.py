"""Other people's clients, unchanged, over every mechanism with and without TLS."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator

import pytest
from tests.interop.secured import programs
from tests.interop.secured.matrix import (
    CERTIFICATE,
    CLIENTS,
    TOKEN_WAYS,
    WAYS,
    Client,
    Refusal,
    Way,
    password_refused,
)
from tests.interop.secured.programs import NotAvailableError, Program
from tests.interop.secured.site import (
    HIDDEN,
    OPEN,
    PARTITIONS,
    PATIENCE_S,
    READ_ONLY,
    WRITE_ONLY,
    WRONG_PASSWORD,
    SecuredBroker,
)
from tests.waiting import wait_until

from millstream.client import Admin

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(programs.BUILD_TIMEOUT_S + 2 * programs.ANSWER_TIMEOUT_S),
]

VALUES = [f"value {number}" for number in range(20)]
CLOSED_GROUP = "closed"

Start = Callable[[Client], Program]


def parameter(client: Client, way: Way | None = None) -> object:
    marks = [pytest.mark.java, pytest.mark.slow] if client.needs_java else []
    if way is None:
        return pytest.param(client, marks=marks, id=client.name)
    return pytest.param(client, way, marks=marks, id=f"{client.name}-{way.name}")


def each_way(ways: tuple[Way, ...] = WAYS) -> pytest.MarkDecorator:
    found = [parameter(client, way) for client in CLIENTS for way in ways]
    return pytest.mark.parametrize(("client", "way"), found)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured")) as broker:
        broker.prepare()
        yield broker
        assert "Traceback" not in broker.log


@pytest.fixture(scope="module")
def started(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Start]:
    """Starts the worker of a client once; skips where it cannot be had."""
    running: dict[str, Program] = {}
    absent: dict[str, str] = {}

    def start(client: Client) -> Program:
        name = client.name
        if name not in running and name not in absent:
            may_download = bool(pytestconfig.getoption("--java", default=False))
            try:
                running[name] = programs.start(
                    name, tmp_path_factory.mktemp(name), may_download=may_download
                )
            except NotAvailableError as error:
                absent[name] = str(error)
        if name in absent:
            pytest.skip(absent[name])
        return running[name]

    yield start
    for program in running.values():
        program.stop()


def is_refused(answer: dict[str, object], refusal: Refusal, told: str) -> None:
    assert answer.get("error") == refusal.error, answer
    assert told in str(answer["told"]), answer


def works(program: Program, settings: dict[str, object], topic: str) -> None:
    """Write, read in a group, which is committed, and look at both."""
    produced = program.ask("produce", settings, topic=topic, values=VALUES)
    assert len(produced.get("offsets", ())) == len(VALUES), produced
    consumed = program.ask("consume", settings, topic=topic, group=topic, count=len(VALUES))
    assert sorted(consumed.get("values", ())) == sorted(VALUES), consumed
    described = program.ask("describe", settings, topic=topic, group=topic)
    assert described == {"partitions": PARTITIONS, "group": topic}


@each_way()
def test_it_writes_reads_in_a_group_and_describes(
    site: SecuredBroker, started: Start, client: Client, way: Way
) -> None:
    program = started(client)
    topic = site.create(f"{OPEN}{client.name}-{way.name}")
    works(program, site.settings_of(way), topic)
    with Admin(bootstrap_servers=site.bootstrap) as admin:
        offsets = admin.list_group_offsets([topic])[topic].get()
    assert sum(each.offset for each in offsets.values()) == len(VALUES)


@each_way()
def test_who_is_not_let_in_is_told_why(
    site: SecuredBroker, started: Start, client: Client, way: Way
) -> None:
    program = started(client)
    refused = site.refused_count(way)
    settings = site.wrong_settings_of(way)
    answer = program.ask("produce", settings, topic=f"{OPEN}any", values=VALUES[:1])
    if way.mechanism == CERTIFICATE:
        is_refused(answer, client.certificate, client.certificate.told)
    elif way.mechanism == "OAUTHBEARER":
        is_refused(answer, client.token, client.token.told)
    else:
        is_refused(answer, client.password, password_refused(client, way.mechanism))
    if way.mechanism != "OAUTHBEARER":  # some leave before the broker has said its last word
        wait_until(lambda: site.refused_count(way) > refused, "the broker notes it")
    assert WRONG_PASSWORD not in site.log


@pytest.mark.parametrize("client", [parameter(client) for client in CLIENTS])
@pytest.mark.parametrize("protocol", ["SASL_SSL", "SSL"])
def test_a_client_that_does_not_trust_the_broker_says_so(
    site: SecuredBroker, started: Start, client: Client, protocol: str
) -> None:
    program = started(client)
    way = Way(CERTIFICATE if protocol == "SSL" else "PLAIN", protocol)
    settings = site.distrusting_settings_of(way)
    answer = program.ask("produce", settings, topic=f"{OPEN}any", values=VALUES[:1])
    is_refused(answer, client.authority, client.authority.told)


@pytest.mark.long
@each_way()
def test_without_a_rule_it_names_what_it_may_not_do(
    site: SecuredBroker, started: Start, client: Client, way: Way
) -> None:
    program = started(client)
    settings = site.settings_of(way)

    def is_refused_topic(topic: str, answer: dict[str, object]) -> None:
        is_refused(answer, client.topic, client.topic.told.format(topic))

    for topic in (READ_ONLY, HIDDEN):
        is_refused_topic(topic, program.ask("produce", settings, topic=topic, values=VALUES[:1]))
    group = f"{OPEN}{client.name}"
    read = program.ask("consume", settings, topic=WRITE_ONLY, group=group, count=1)
    is_refused_topic(WRITE_ONLY, read)
    is_refused_topic(HIDDEN, program.ask("describe", settings, topic=HIDDEN, group=group))
    answer = program.ask("consume", settings, topic=READ_ONLY, group=CLOSED_GROUP, count=1)
    is_refused(answer, client.group, client.group.told)


@each_way(TOKEN_WAYS)
def test_a_delegation_token(site: SecuredBroker, started: Start, client: Client, way: Way) -> None:
    """It lets its client in as its owner. A client that has none is a user whom nobody knows."""
    program = started(client)
    token_id, hmac = site.issue_token()
    settings = site.settings_of(way) | {
        "username": token_id,
        "password": base64.b64encode(hmac).decode(),
        "is_token": True,
    }
    topic = site.create(f"{OPEN}token-{client.name}-{way.name}")
    if client.has_delegation_tokens:
        works(program, settings, topic)
        site.end_token(hmac)
    refused = settings | {"patience_s": PATIENCE_S}
    answer = program.ask("produce", refused, topic=topic, values=VALUES[:1])
    is_refused(answer, client.password, password_refused(client, way.mechanism))
