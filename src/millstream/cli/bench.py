"""`millstream bench`: how fast a cluster takes records, gives them back, and hands them through."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeAlias, cast

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Timeout,
    bootstrap_servers,
    check_topic,
    duration_ms,
    open_admin,
    size_bytes,
)
from millstream.cli.client_options import settings_of
from millstream.cli.failures import FAILED, CommandFailedError, complain, sentence
from millstream.cli.interruption import ended_in_time
from millstream.cli.output import Row, counted, human_bytes, is_for_a_person, print_json, print_rows
from millstream.cli.partition_ends import ends_of
from millstream.cli.waiting import Waiting
from millstream.client import Consumer, Producer, RecordMetadata
from millstream.client.core.consumer.settings import ConsumerSettings
from millstream.client.core.settings import ProducerSettings
from millstream.model.topic import TopicPartition

app = typer.Typer(
    help="Measure the speed of a cluster: produce, consume, end-to-end.", no_args_is_help=True
)

_PERCENTILES: Final = (50, 95, 99, 99.9)
_POLL_S: Final = 0.2

Topic: TypeAlias = Annotated[str, typer.Argument(metavar="TOPIC", help="An existing topic.")]
Records: TypeAlias = Annotated[int, typer.Option("--records", "-n", min=1, help="How many.")]
Size: TypeAlias = Annotated[
    str,
    typer.Option(
        "--size", "-s", metavar="SIZE", help="Bytes of each value, for example 100 or 1KB."
    ),
]


@dataclass(slots=True)
class _Run:
    """What was measured: seconds from the first to the last, and a latency of each record."""

    began: float = 0.0
    ended: float = 0.0
    records: int = 0
    payload_bytes: int = 0
    latencies: list[float] = field(default_factory=list)
    failed: int = 0
    first_error: Exception | None = None

    def begin(self) -> None:
        """Note that the first record comes now."""
        self.began = time.perf_counter()

    def shown(self) -> dict[str, object]:
        """Return the figures: rates a second, latencies in milliseconds."""
        seconds = max(self.ended - self.began, 1e-9)
        found: dict[str, object] = {
            "records": self.records,
            "seconds": round(seconds, 3),
            "records_per_second": round(self.records / seconds, 1),
            "bytes_per_second": round(self.payload_bytes / seconds),
        }
        if self.latencies:
            ordered = sorted(self.latencies)
            found["latency_ms"] = {
                **{
                    f"p{each:g}": round(_percentile(ordered, each) * 1000, 3)
                    for each in _PERCENTILES
                },
                "max": round(ordered[-1] * 1000, 3),
            }
        return found


def _percentile(ordered: list[float], percent: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


@app.command()
def produce(
    topic: Topic,
    records: Records = 1_000_000,
    size: Size = "100",
    throughput: Annotated[
        int, typer.Option(min=0, help="Maximum records per second; 0 for no limit.")
    ] = 0,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Send records of random bytes, and show rates and acknowledgement times.

    Set options of the producer with -X, for example -X acks=1 -X linger.ms=5 -X
    compression.type=lz4.
    """
    settings = _settings(bootstrap, timeout, topic, settings_of(ProducerSettings))
    payload = _payload(size)
    with (
        _shown(topic, as_json) as run,
        Producer(settings) as producer,
        Waiting(producer.unreachable),
        ended_in_time(producer),
    ):
        run.begin()
        for number in range(records):
            _keep_to(throughput, number, run.began)
            _send(producer, topic, payload, run)
        producer.flush()


def _send(producer: Producer, topic: str, payload: bytes, run: _Run) -> None:
    sent = time.perf_counter()

    def tell(metadata: RecordMetadata | None, error: Exception | None) -> None:
        now = time.perf_counter()
        if error is None:
            run.records += 1
            run.payload_bytes += len(payload)
            run.latencies.append(now - sent)
            run.ended = now
        else:
            run.failed += 1
            run.first_error = run.first_error or error

    producer.send(topic, payload, on_delivery=tell)


def _keep_to(throughput: int, number: int, began: float) -> None:
    if throughput:
        ahead = number / throughput - (time.perf_counter() - began)
        if ahead > 0:
            time.sleep(ahead)


@app.command()
def consume(
    topic: Topic,
    records: Annotated[
        int | None,
        typer.Option("--records", "-n", min=1, help="How many.", show_default="all there are"),
    ] = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Read a topic from its beginning, and show rates. Offsets are not committed."""
    settings = _settings(bootstrap, timeout, topic, settings_of(ConsumerSettings))
    settings["enable.auto.commit"] = "false"
    with (
        _shown(topic, as_json) as run,
        Consumer[bytes, bytes](settings) as consumer,
        Waiting(consumer.unreachable),
    ):
        with open_admin(bootstrap, timeout) as admin:
            ends = ends_of(admin, topic)
        open_ones = {place for place, (start, end) in ends.items() if start < end}
        if not open_ones:
            raise CommandFailedError(f"{topic} has no records to read: millstream bench produce")
        consumer.assign(open_ones)
        consumer.seek_to_beginning()
        run.begin()
        while open_ones and (records is None or run.records < records):
            for record in consumer.poll(_POLL_S):
                run.records += 1
                run.payload_bytes += len(record.value or b"") + len(record.key or b"")
            run.ended = time.perf_counter()
            open_ones = {each for each in open_ones if consumer.position(each) < ends[each][1]}


@app.command("end-to-end")
def end_to_end(
    topic: Topic,
    records: Records = 10_000,
    size: Size = "100",
    throughput: Annotated[
        int, typer.Option(min=0, help="Maximum records per second; 0 sends one after the other.")
    ] = 0,
    at_most: Annotated[
        str, typer.Option(metavar="TIME", help="How long to wait for a record that was sent.")
    ] = "30s",
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Send records to one partition, read them back, and show the time from send to poll."""
    patience_s = duration_ms(at_most, "--at-most") / 1000
    writing = _settings(bootstrap, timeout, topic, settings_of(ProducerSettings))
    reading = _settings(bootstrap, timeout, topic, settings_of(ConsumerSettings))
    reading["enable.auto.commit"] = "false"
    place = TopicPartition(topic, 0)
    mark = os.urandom(8)
    payload = _payload(size, at_least=16)
    with (
        _shown(topic, as_json) as run,
        Producer(writing) as producer,
        Waiting(producer.unreachable),
        ended_in_time(producer),
        Consumer[bytes, bytes](reading) as consumer,
    ):
        consumer.assign([place])
        consumer.seek_to_end()
        consumer.position(place)
        run.begin()
        sent: list[float] = []
        while run.records < records:
            ahead = records if throughput else run.records + 1
            while len(sent) < ahead and (
                not throughput or len(sent) <= (time.perf_counter() - run.began) * throughput
            ):
                value = mark + len(sent).to_bytes(8, "big") + payload[16:]
                sent.append(time.perf_counter())
                producer.send(topic, value, partition=0)
            for record in consumer.poll(0.001 if throughput else _POLL_S):
                _arrived(run, record.value or b"", mark, sent)
            waiting_since = sent[run.records] if run.records < len(sent) else time.perf_counter()
            if time.perf_counter() - waiting_since > patience_s:
                raise CommandFailedError(
                    f"a record that was sent to {place} has not come back after {at_most} "
                    f"({run.records:,} did)"
                )


def _arrived(run: _Run, value: bytes, mark: bytes, sent: list[float]) -> None:
    if value[:8] != mark:
        return  # somebody else writes to the topic too
    now = time.perf_counter()
    run.records += 1
    run.payload_bytes += len(value)
    run.latencies.append(now - sent[int.from_bytes(value[8:16], "big")])
    run.ended = now


def _settings(
    bootstrap: str, timeout: str | None, topic: str, given: Mapping[str, str]
) -> dict[str, str]:
    servers = bootstrap_servers(bootstrap, timeout)
    check_topic(bootstrap, topic)
    return {"client.id": "millstream-bench", **given, "bootstrap.servers": servers}


def _payload(size: str, at_least: int = 0) -> bytes:
    count = size_bytes(size, "--size")
    if count < at_least:
        raise typer.BadParameter(f"at least {at_least} bytes", param_hint="--size")
    return os.urandom(count)


@contextmanager
def _shown(topic: str, as_json: bool) -> Iterator[_Run]:
    """Yield what a block measures, and show it in the end; when Ctrl-C or SIGTERM ends the block,
    what was measured until then.
    """
    run = _Run()
    try:
        yield run
    except (KeyboardInterrupt, SystemExit):
        if run.records:
            _show(run, topic, as_json, is_interrupted=True)
        complain(f"stopped before the end, after {counted(run.records, 'record')}")
        raise
    _show(run, topic, as_json)
    if run.first_error is not None:
        complain(f"{run.failed:,} of the records failed: {sentence(run.first_error)}")
        raise typer.Exit(FAILED)


def _show(run: _Run, topic: str, as_json: bool, *, is_interrupted: bool = False) -> None:
    found = {"topic": topic, **run.shown()}
    if run.failed:
        found["failed"] = run.failed
    if as_json:
        print_json(found | ({"interrupted": True} if is_interrupted else {}))
    else:
        _print(run, found)


def _print(run: _Run, found: dict[str, object]) -> None:
    if not is_for_a_person():
        latencies = found.pop("latency_ms", {})
        assert isinstance(latencies, dict)
        row = cast(Row, {**found, **latencies})
        print_rows([row], {key: key.replace("_", " ") for key in row})
        return
    rate = human_bytes(float(str(found["bytes_per_second"])))
    print(
        f"{run.records:,} records in {found['seconds']} s: "
        f"{found['records_per_second']:,} records and {rate} a second"
    )
    latency = found.get("latency_ms")
    if isinstance(latency, dict):
        print("latency " + ", ".join(f"{name} {value:g} ms" for name, value in latency.items()))
