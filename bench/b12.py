"""B12: the Python clients side by side, record by record and as tables."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field

from rich.table import Table

from bench.load.clients import ClientSpec, to_json
from bench.load.report import LoadReport
from bench.session import Session
from bench.stage import Broker, run_load, run_module
from bench.tables import NOTHING, JsonValue, Section, Tally
from bench.work import RawProduce

RECORD_BYTES = 100
PARTITIONS = 6
# As many as a client moves in some seconds.
RECORDS = {
    "tables": 5_000_000,
    "records": 1_000_000,
    "confluent-kafka": 2_000_000,
    "aiokafka": 500_000,
    "kafka-python": 200_000,
}
NAMES = {"tables": "Millstream, tables", "records": "Millstream, one by one"}
CONDITIONS = (
    f"one broker (Millstream, log.flush.policy=os) on the same machine, {PARTITIONS} partitions, "
    f"{RECORD_BYTES}-byte values, no keys, no compression, acks=all, 128-KB batches, linger 5 ms",
    "a process per run; from the first send until all are acknowledged, from the assignment until "
    "the last has arrived; medians of rounds in which the clients take turns",
    "per core: records by the CPU time of the client's process, which is what is left when the "
    "broker and the network keep up",
)
MILLION = 1e6


@dataclass
class Runs:
    """The samples of one client in one direction."""

    client: str
    kind: str
    reports: list[LoadReport] = field(default_factory=list)
    failure: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind}, {NAMES.get(self.client, self.client)}"

    @property
    def per_second(self) -> float | None:
        rates = [each.records / each.seconds for each in self.reports]
        return statistics.median(rates) if rates else None

    @property
    def per_core(self) -> float | None:
        rates = [each.records / each.load_cpu_s for each in self.reports]
        return statistics.median(rates) if rates else None


def run(session: Session) -> list[Section]:
    """Run every client that `--only` leaves."""
    broker = session.stage.millstream()
    everything = [Runs(client, kind) for kind in ("produce", "consume") for client in RECORDS]
    wanted = [each for each in everything if session.options.only in each.name]
    if broker is None:
        for each in wanted:
            each.failure = session.stage.millstream_absent
    for round_number in range(session.options.pairs + 1):
        for each in wanted:
            if broker is None or each.failure:
                continue
            try:
                report = _measure(session, broker, each)
            except Exception as error:
                each.failure = f"{type(error).__name__}: {error}"
                session.say(f"{each.name} failed: {each.failure}")
                continue
            if round_number:
                each.reports.append(report)
        session.say(f"round {round_number} of {session.options.pairs}: done")
    return [_section(wanted)]


def _measure(session: Session, broker: Broker, runs: Runs) -> LoadReport:
    records = max(session.options.scaled(RECORDS[runs.client]) // 1000, 1) * 1000
    stage = session.stage
    with broker.admin() as admin:
        if runs.kind == "produce":
            topic = stage.next_topic()
            admin.create_topic(topic, PARTITIONS, broker.topic_settings)
        else:
            topic = _filled(session, broker)
        spec = ClientSpec(
            client=runs.client,
            kind=runs.kind,
            bootstrap=f"{broker.node.host}:{broker.node.port}",
            broker_pids=(broker.node.pid,),
            topic=topic,
            partitions=PARTITIONS,
            records=records,
            record_bytes=RECORD_BYTES,
        )
        report = run_module("bench.load.clients", to_json(spec))
        if runs.kind == "produce":
            ends = admin.offsets(topic, PARTITIONS) or []
            assert sum(ends) == records, f"{records} acknowledged, the log ends at {ends}"
            admin.delete_topic(topic)
    return report


def _filled(session: Session, broker: Broker) -> str:
    """Return a topic that holds enough for every consumer."""
    topic = "bench-b12"
    if topic not in broker.filled:
        most = session.options.scaled(max(RECORDS.values()))
        with broker.admin() as admin:
            admin.create_topic(topic, PARTITIONS, broker.topic_settings)
        fill = RawProduce(PARTITIONS, 110_000, RECORD_BYTES, most * RECORD_BYTES // 100_000 + 60)
        run_load(fill.spec(port=broker.node.port, pid=broker.node.pid, topic=topic))
        broker.filled.add(topic)
    return topic


def _section(everything: list[Runs]) -> Section:
    table = Table(title="B12 · Python clients, 100-byte records", title_justify="left")
    table.add_column("row", no_wrap=True)
    for heading in ("records/s", "load, cores", "records/s per core", "targets"):
        table.add_column(heading, justify="right")
    rows: list[JsonValue] = []
    tally = Tally()
    for each in everything:
        verdicts = []
        for text, met in _targets(each, everything):
            tally.count(met)
            verdicts.append(text + (" met" if met else " missed" if met is not None else ""))
        rate, per_core = each.per_second, each.per_core
        table.add_row(
            each.name,
            "[red]failed[/red]" if each.failure else NOTHING if rate is None else f"{rate:,.0f}",
            NOTHING if not rate or not per_core else f"{rate / per_core:.2f}",
            NOTHING if per_core is None else f"{per_core:,.0f}",
            "; ".join(verdicts) or NOTHING,
        )
        rows.append(
            {
                "row": each.name,
                "records per second": rate,
                "records per second and core": per_core,
                "failure": each.failure or None,
                "samples": [dict(asdict(report)) for report in each.reports],
            }
        )
    return Section(table, {"title": "B12", "rows": rows}, tally)


def _targets(runs: Runs, everything: list[Runs]) -> list[tuple[str, bool | None]]:
    def times(other: str, least: float) -> tuple[str, bool | None]:
        theirs = next(
            (
                each.per_second
                for each in everything
                if (each.client, each.kind) == (other, runs.kind)
            ),
            None,
        )
        ours = runs.per_second
        met = None if not theirs or not ours else ours >= least * theirs
        shown = "" if not theirs or not ours else f" ({ours / theirs:.1f})"
        return f"≥ {least:g}× {other}{shown}", met

    if runs.client == "tables":
        per_core = runs.per_core
        met = None if per_core is None else per_core >= 5 * MILLION
        first: list[tuple[str, bool | None]] = [("≥ 5 M per core", met)]
        return [*first, times("confluent-kafka", 5)] if runs.kind == "consume" else first
    if runs.client == "records":
        rule = [times("aiokafka", 2)]
        return [*rule, times("confluent-kafka", 1)] if runs.kind == "consume" else rule
    return []
