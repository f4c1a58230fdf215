"""The same requests on a broker that lets everybody do everything, and on ones that ask first."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from bench import work
from bench.figures import Figure
from bench.load.report import LoadReport
from bench.pairs import KAFKA, MILLSTREAM
from bench.peers.kafka import KafkaNode
from bench.peers.millstream import millstream_node
from bench.peers.subject import Node
from bench.session import Session
from bench.solo import attempt
from bench.stage import BROKER_SETTINGS, Broker, Stage
from millstream.client import Admin
from millstream.client.core.admin.access import QuotaEntity
from millstream.model.acl import Acl, AclOperation, AclResource, PatternType

RULES = 1_000
AUTHORIZING = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # What has no rule, as the cluster, stays open: the set-up needs no user of its own.
    "allow.everyone.if.no.acl.found": "true",
}
FAR_ABOVE_BYTES_PER_S = 1e12
MOST_COST = 1.02
OPEN, RULED, LIMITED = "open", "1,000 rules", "byte quotas"

Work = Callable[[Broker], LoadReport]


@dataclass
class Cost:
    """The figures of one row and one guard."""

    cpu: Figure
    time: Figure

    def add(self, subject: str, guarded: LoadReport, free: LoadReport) -> None:
        """Take one round."""
        self.cpu.add(subject, _cpu(guarded) / _cpu(free))
        self.time.add(subject, _time(guarded) / _time(free))


def _cpu(report: LoadReport) -> float:
    return report.broker_cpu_s / report.requests


def _time(report: LoadReport) -> float:
    return report.seconds / report.requests


def guarded_requests(session: Session) -> list[Figure]:
    """Return, row by row, what a request takes on the open brokers and how much more elsewhere."""
    wanted = {
        name: job for name, job in _rows(session.stage).items() if session.options.only in name
    }
    if not wanted:
        return []
    figures: list[Figure] = []
    with ExitStack() as stack:
        brokers = {
            subject: _brokers(session.stage, subject, stack)
            for subject in (KAFKA, MILLSTREAM)
            if subject == MILLSTREAM or session.stage.install is not None
        }
        for subject, guards in brokers.items():
            session.say(f"warming up: {subject}")
            for broker in guards.values():
                work.warm_up(session.stage, broker)
        for name, job in wanted.items():
            figures += _measure(session, name, job, brokers)
    return figures


def _measure(
    session: Session, name: str, job: Work, brokers: dict[str, dict[str, Broker]]
) -> list[Figure]:
    taken = Figure(f"{name}: CPU of the open broker", "µs/request", 1)
    costs = {
        guard: Cost(
            Figure(f"{name}: CPU with {guard} / open", "×", 3, bound),
            Figure(f"{name}: time with {guard} / open", "×", 3),
        )
        for guard, bound in ((RULED, MOST_COST), (LIMITED, None))
    }
    figures = [taken, *(figure for cost in costs.values() for figure in (cost.cpu, cost.time))]
    for number in range(session.options.pairs + 1):
        for subject, guards in brokers.items():
            sample = partial(_sample, subject, guards, job, taken, costs, number)
            attempt(figures, subject, sample)
    session.say_figures(name, figures)
    return figures


def _sample(
    subject: str,
    guards: dict[str, Broker],
    job: Work,
    taken: Figure,
    costs: dict[str, Cost],
    number: int,
) -> None:
    """Run one round; the first one is not counted."""
    order = list(guards) if number % 2 else list(reversed(guards))
    reports = {guard: job(guards[guard]) for guard in order}
    if number == 0:
        return
    taken.add(subject, _cpu(reports[OPEN]) * 1e6)
    for guard, cost in costs.items():
        cost.add(subject, reports[guard], reports[OPEN])


def _rows(stage: Stage) -> dict[str, Work]:
    rows: dict[str, Work] = {}
    scaled = stage.options.scaled
    for connections in (1, 4):
        plural = "1 connection" if connections == 1 else f"{connections} connections"
        for title, batch_bytes, record_bytes, requests in (
            ("produce one 100-byte record", 0, 100, 60_000),
            ("produce 17 KB", 17_000, 1_000, 32_000),
        ):
            produce = work.RawProduce(connections, batch_bytes, record_bytes, scaled(requests))
            rows[f"{title}, {plural}"] = partial(_produce, stage, produce)
        fetch = work.RawFetch(connections, 1 << 16, scaled(24_000))
        rows[f"fetch 64 KB, {plural}"] = partial(_fetch, fetch)
    return rows


def _produce(stage: Stage, job: work.RawProduce, broker: Broker) -> LoadReport:
    return work.produce_to_broker(stage, broker, job)


def _fetch(job: work.RawFetch, broker: Broker) -> LoadReport:
    return work.fetch_from_broker(broker, job)


def _brokers(stage: Stage, subject: str, stack: ExitStack) -> dict[str, Broker]:
    found = {}
    for guard in (OPEN, RULED, LIMITED):
        settings = {**BROKER_SETTINGS, **(AUTHORIZING if guard == RULED else {})}
        node = _start(stage, subject, settings, guard, stack)
        found[guard] = Broker(node)
        with Admin(bootstrap_servers=f"{node.host}:{node.port}") as admin:
            if guard == RULED:
                admin.create_acls(rules_of_others(RULES - 1)).get_all()
                admin.create_acls([_rule_of_the_load()]).get_all()
            if guard == LIMITED:
                limits = {
                    "producer_byte_rate": FAR_ABOVE_BYTES_PER_S,
                    "consumer_byte_rate": FAR_ABOVE_BYTES_PER_S,
                }
                everybody = QuotaEntity((("client-id", None),))
                admin.alter_client_quotas({everybody: limits}).get_all()
    return found


def _start(
    stage: Stage, subject: str, settings: dict[str, str], guard: str, stack: ExitStack
) -> Node:
    directory = stage.directory / f"{subject} {guard}".replace(" ", "-").replace(",", "")
    if subject == MILLSTREAM:
        ours = millstream_node(directory, settings={**settings, "log.flush.policy": "os"})
        stack.callback(ours.stop)
        return ours.start()
    assert stage.install is not None
    node = KafkaNode(stage.install, directory, settings=settings)
    stack.callback(node.stop)
    return node.start()


def _rule_of_the_load() -> Acl:
    return Acl(
        resource=AclResource.TOPIC,
        name="bench-",
        principal="User:ANONYMOUS",
        operation=AclOperation.ALL,
        pattern=PatternType.PREFIXED,
    )


def rules_of_others(count: int, *, for_each_topic: int = 10) -> list[Acl]:
    """Return so many rules for users and topics that no load knows."""
    return [
        Acl(
            resource=AclResource.TOPIC,
            name=f"other-{number // for_each_topic}",
            principal=f"User:user-{number % for_each_topic}",
            operation=AclOperation.READ,
        )
        for number in range(count)
    ]
