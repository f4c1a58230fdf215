"""The command line against a real broker: what it prints, and how it ends."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.broker_process import BrokerProcess
from tests.interop.clients.access_log import access_log_bytes
from tests.system.wire import Wire, produce

from millstream.cli.main import main
from millstream.client import Admin, Consumer
from millstream.model.topic import TopicPartition
from millstream.records.batch import CRC_POSITION, HEADER_SIZE
from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.compression import Codec
from millstream.records.crc32c import checksum
from millstream.records.record import Record

pytestmark = pytest.mark.system


class Done(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> list[dict[str, object]]:
        assert self.code == 0, self.err
        return json.loads(self.out)  # type: ignore[no-any-return]

    def rows(self) -> list[list[str]]:
        assert self.code == 0, self.err
        return [line.split("\t") for line in self.out.splitlines()]


Cli = Callable[..., Done]
Topics = Callable[[], str]


@pytest.fixture
def cli(
    broker: BrokerProcess, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Cli:
    """Run a command in this process; what it reads from standard input needs ``piped``."""
    monkeypatch.setenv("MILLSTREAM_BOOTSTRAP_SERVERS", broker.bootstrap)

    def run(*words: str) -> Done:
        capfd.readouterr()
        code = main(words)
        return Done(code, *capfd.readouterr())

    return run


@pytest.fixture
def piped(broker: BrokerProcess) -> Cli:
    """Run a command as a process with bytes on its standard input."""

    def run(*words: str, stdin: bytes = b"") -> Done:
        done = subprocess.run(
            command(*words),
            input=stdin,
            env=environment(broker),
            capture_output=True,
            timeout=60,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "millstream.cli.main", *words]


def environment(broker: BrokerProcess) -> dict[str, str]:
    return {**os.environ, "MILLSTREAM_BOOTSTRAP_SERVERS": broker.bootstrap}


def test_topics(cli: Cli, new_topic: Topics) -> None:
    one, two = new_topic(), new_topic()
    created = cli("topic", "create", one, two, "-p", "3", "-c", "retention.ms=86400000")
    assert created == (0, f"created\ttopic\t{one}\ncreated\ttopic\t{two}\n", "")
    again = cli("topic", "create", one)
    assert (again.code, again.err) == (1, f"millstream: topic {one!r} already exists\n")
    assert cli("topic", "create", one, "--if-not-exists").code == 0
    listed = {row["topic"]: row for row in cli("topic", "list", "--json").json()}
    assert listed[one]["partitions"] == 3
    assert [one, "3", "1"] in [row[:3] for row in cli("topic", "list").rows()]

    assert cli("topic", "alter", one, "-p", "5", "-c", "segment.bytes=2000000").code == 0
    (described,) = cli("topic", "describe", one, "--json").json()
    assert described["configs"] == {"retention.ms": "86400000", "segment.bytes": "2000000"}
    assert len(described["partitions"]) == 5  # type: ignore[arg-type]
    assert cli("topic", "alter", one, "--delete-config", "segment.bytes").code == 0
    assert cli("topic", "alter", one, "-p", "1").code == 1

    deleted = cli("topic", "delete", one, "no-such-topic", two)
    assert deleted.code == 1
    assert deleted.out.splitlines() == [f"deleted\ttopic\t{one}", f"deleted\ttopic\t{two}"]
    assert deleted.err == "millstream: there is no topic 'no-such-topic'\n"
    assert cli("topic", "delete", one, "--if-exists") == (0, "", "")


def test_a_record_that_cannot_be_read_is_told_with_the_options_that_skip_it(
    cli: Cli, new_topic: Topics, broker: BrokerProcess
) -> None:
    topic = new_topic()
    cli("topic", "create", topic)
    spoilt = bytearray(encode_batch([Record(0, 1, None, b"a")], BatchOptions(codec=Codec.ZSTD)))
    spoilt[HEADER_SIZE:] = bytes(len(spoilt) - HEADER_SIZE)
    struct.pack_into(">I", spoilt, CRC_POSITION, checksum(spoilt[CRC_POSITION + 4 :]))
    host, _, port = broker.bootstrap.rpartition(":")
    with Wire(host, int(port)) as wire:
        assert produce(wire, topic, 0, bytes(spoilt)).error_code == 0
        assert produce(wire, topic, 0, encode_batch([Record(0, 1, None, b"b")])).error_code == 0
    stopped = cli("consume", topic, "-e")
    assert stopped.code == 1
    assert stopped.err.endswith("; seek to 1 to go past it (-p 0 -o 1)\n")
    assert cli("consume", topic, "-e", "-p", "0", "-o", "1").out == "b\n"


def test_a_move_to_no_log_directory_names_it(cli: Cli, new_topic: Topics) -> None:
    topic = new_topic()
    cli("topic", "create", topic)
    refused = cli("log-dirs", "move", topic, "/no/such")
    assert refused.code == 1
    assert refused.err.startswith(
        f"millstream: {topic}-0 is not moved to /no/such: the broker has no such log directory"
    )


@pytest.mark.parametrize("brokers", [["--broker", "1"], ["--broker-defaults"]])
def test_a_mistyped_setting_of_brokers_is_refused(cli: Cli, brokers: list[str]) -> None:
    for command, words in (("alter", ["log.retention.mss=1"]), ("delete", ["log.retention.mss"])):
        refused = cli("config", command, *brokers, *words)
        assert refused.code == 1
        assert refused.err.endswith(
            " has no setting 'log.retention.mss'; the nearest is 'log.retention.ms'\n"
        )
    protected = cli("config", "alter", *brokers, "password.encoder.secret=x")
    assert "password.encoder.secret: Millstream does not act on this setting yet" in protected.err
    assert cli("config", "alter", *brokers, "log.retention.ms=9").code == 0
    assert cli("config", "delete", *brokers, "log.retention.ms").code == 0
    of_listener = "listener.name.plaintext.max.connection.creation.rate"
    assert cli("config", "delete", *brokers, of_listener).code == 0


def test_settings(cli: Cli, new_topic: Topics) -> None:
    topic = new_topic()
    cli("topic", "create", topic)
    assert cli("config", "alter", "-t", topic, "segment.ms=86400000", "retention.ms=-1").code == 0
    assert cli("config", "describe", "-t", topic).rows() == [
        ["min.insync.replicas", "1", "broker default"],
        ["retention.ms", "-1", "topic"],
        ["segment.ms", "86400000", "topic"],
    ]
    assert cli("config", "delete", "-t", topic, "segment.ms").code == 0
    everything = cli("config", "describe", "-t", topic, "--all", "--json").json()
    settings = {row["name"]: row for row in everything}
    assert settings["segment.ms"]["value"] == "604800000"
    assert settings["segment.ms"]["source"] == "default"
    refused = cli("config", "alter", "-t", topic, "no.such.setting=1")
    assert refused.code == 1
    assert "no.such.setting" in refused.err
    for mistyped in (
        cli("config", "delete", "-t", topic, "retention.mss"),
        cli("topic", "alter", topic, "--delete-config", "retention.mss"),
    ):
        assert mistyped.code == 1
        assert mistyped.err == (
            f"millstream: topic '{topic}' has no setting 'retention.mss'; the nearest is "
            "'retention.ms'\n"
        )
    of_broker = {row[0] for row in cli("config", "describe", "--broker", "1").rows()}
    assert "log.dirs" in of_broker
    assert cli("config", "describe", "--broker", "99").code == 1


def test_records_there_and_back(cli: Cli, piped: Cli, new_topic: Topics) -> None:
    topic, copy = new_topic(), new_topic()
    cli("topic", "create", topic, "-p", "4")
    keyed = piped("produce", topic, "-K:", "-H", "h=1", stdin=b"a:1\nb:2\nc:3\n")
    assert keyed == (0, "", "")
    assert piped("produce", topic, "-p", "2", "-Z", "-z", "zstd", stdin=b"x\n\nlast").code == 0
    found = cli("consume", topic, "-e", "--json")
    records = [json.loads(line) for line in found.out.splitlines()]
    assert {record["key"] for record in records} == {"a", "b", "c", None}
    assert [record["value"] for record in records if record["key"] is None] == ["x", None, "last"]
    assert records[0]["headers"] == [{"key": "h", "value": "1"}]

    assert piped("produce", copy, "--json", stdin=found.out.encode()).code == 0
    again = cli("consume", copy, "-e", "-f", "%k=%s %T\\n").out
    original = cli("consume", topic, "-e", "-f", "%k=%s %T\\n").out
    assert sorted(again.splitlines()) == sorted(original.splitlines())


def test_a_line_that_is_no_record_ends_produce_and_is_told(
    cli: Cli, piped: Cli, new_topic: Topics
) -> None:
    topic = new_topic()
    cli("topic", "create", topic, "--config", "cleanup.policy=compact")
    lines = b'{"key": "a", "value": "1"}\n{"key": "a", "value": null}\n{"key": "a"}\n{"value": 4}\n'
    refused = piped("produce", topic, "--json", stdin=lines)
    assert refused.code == 1
    assert refused.err.startswith("millstream: line 3: it is not a record: it has no value")
    assert refused.err.endswith("; 2 records were sent before it\n")
    assert cli("consume", topic, "-e", "-f", "%k %S\\n").out == "a 1\na -1\n"

    plain = piped("produce", topic, "--json", stdin=b'{"user": "ann"}\n')
    assert plain.code == 1
    assert "line 1: it is not a record: 'user' is not a field" in plain.err
    assert plain.err.endswith("; nothing was sent\n")
    assert piped("produce", topic, "--json", "-Z", stdin=b"").code == 2

    too_large = b'{"key": "b", "value": "%s"}\n' % (b"x" * 2_000_000)
    failed = piped("produce", topic, "--json", stdin=b'{"key": "b", "payload": "1"}\n' + too_large)
    assert failed.code == 1
    assert failed.err.startswith("millstream: line 2: 2,000,001 bytes are too long for a record: ")
    assert failed.err.endswith("; 1 record was sent before it\n")
    lifts = re.findall(r"\((-X \S+|millstream topic alter .*?)\)", failed.err)
    option, command = (each.split() for each in lifts)
    assert cli(*command[1:]).code == 0
    lifted = piped("produce", topic, "--json", *option, stdin=too_large)
    assert lifted == (0, "", "")

    odd = b'{"key": "a"}\n{"key": "a", "value": "1"}\n' + too_large
    skipped = piped("produce", topic, "--json", "--on-error", "skip", stdin=odd)
    assert skipped.code == 0
    assert [line.partition(":")[2][:25] for line in skipped.err.splitlines()] == [
        " line 1 is skipped: it is",
        " line 3 is skipped: 2,000",
    ]


def test_a_long_line_is_named_and_what_came_before_it_is_there(
    cli: Cli, piped: Cli, new_topic: Topics, tmp_path: Path
) -> None:
    topic = new_topic()
    path = tmp_path / "long.log"
    path.write_bytes(b"1\n2\n" + b"x" * 1_500_000 + b"\n4\n")
    stopped = cli("ingest", str(path), "-t", topic, "-p", "1")
    assert stopped.code == 1
    assert stopped.err.startswith(
        f"millstream: line 3 of {path}: 1,500,000 bytes are too long for a record: "
        f"max.message.bytes of topic '{topic}' is 1,048,588 (millstream topic alter {topic} "
    )
    assert stopped.err.endswith(f"; written up to line 2 of {path}\n")
    assert cli("consume", topic, "-e").out == "1\n2\n"

    resumed = new_topic()
    once = ("ingest", str(path), "-t", resumed, "--resume")
    assert cli(*once, "-p", "1").err.endswith("; 2 records written by this command\n")
    skipped = cli(*once, "--on-error", "skip", "--json")
    found = json.loads(skipped.out)
    assert (found["records"], found["skipped"]) == (1, 1)
    assert cli("consume", resumed, "-e").out == "1\n2\n4\n"
    assert cli("ingest", "-", "-t", resumed, "--resume").code == 2
    assert cli(*once, "--acks", "1").code == 2
    assert cli(*once, "--name", "another", "--on-error", "skip").code == 0
    assert cli("consume", resumed, "-e").out == "1\n2\n4\n1\n2\n4\n"


def test_values_of_a_schema(cli: Cli, piped: Cli, new_topic: Topics, tmp_path: Path) -> None:
    topic = new_topic()
    path = tmp_path / "text.avsc"
    path.write_text('"string"')
    cli("topic", "create", topic)
    piped("produce", topic, "-K", ":", stdin=b"abcd:\x06abc\n")
    shown = cli("consume", topic, "-e", "-s", f"avro:{path}", "-s", "key=i", "-f", "%k %s\\n")
    assert shown.out == "1633837924 abc\n"
    wrong = cli("consume", topic, "-e", "-s", "q")
    assert wrong.err.startswith(
        f"millstream: the value of offset 0 in {topic}-0 cannot be read: it has 4 bytes"
    )


def test_where_to_start_and_stop(cli: Cli, piped: Cli, new_topic: Topics) -> None:
    topic = new_topic()
    cli("topic", "create", topic)
    piped("produce", topic, stdin=b"0\n1\n2\n3\n4\n")
    assert cli("consume", topic, "-e", "-o", "3").out == "3\n4\n"
    assert cli("consume", topic, "-e", "-o", "-2").out == "3\n4\n"
    assert cli("consume", topic, "-c", "2").out == "0\n1\n"
    assert cli("consume", topic, "-e", "-o", "end").out == ""
    assert cli("consume", topic, "-e", "--since", "1h").out == "0\n1\n2\n3\n4\n"
    assert cli("consume", topic, "-e", "--since", "2999-01-01").out == ""
    both = cli("consume", topic, "-e", "--since", "1h", "-o", "beginning")
    assert both.code == 2
    assert both.err.startswith("millstream: --since cannot be combined with --offset (see ")
    missing = cli("consume", topic, "-e", "-p", "7")
    assert (missing.code, "no partition 7" in missing.err) == (1, True)
    assert cli("consume", "no-such-topic", "-e").code == 1
    assert cli("consume", topic, "-e", "-o", "5").out == ""
    for beyond in (["-o", "6", "-e"], ["-o", "6"]):
        refused = cli("consume", topic, *beyond)
        assert refused.code == 1
        assert f"offset 6 is not in {topic}-0: it begins at 0" in refused.err


def test_an_access_log_byte_for_byte(
    cli: Cli, piped: Cli, new_topic: Topics, tmp_path: Path
) -> None:
    topic = new_topic()
    data = access_log_bytes()
    path = tmp_path / "access.log"
    path.write_bytes(data)
    done = cli("ingest", str(path), "--topic", topic, "--partitions", "4", "--json")
    summary = json.loads(done.out)
    assert (summary["records"], summary["bytes"]) == (data.count(b"\n"), len(data))
    found = piped("consume", topic, "-e").out
    assert sorted(found.splitlines()) == sorted(data.decode().splitlines())
    (described,) = cli("topic", "describe", topic, "--json").json()
    partitions = described["partitions"]
    assert isinstance(partitions, list)
    assert all(partition["latest"] > 0 for partition in partitions)
    rows = cli("topic", "describe", topic).rows()
    assert [row[:2] for row in rows] == [[topic, str(number)] for number in range(4)]

    assert not [row for row in cli("topic", "list").rows() if row[0].startswith("__")]
    through_pipe = new_topic()
    assert piped("ingest", "-", "-t", through_pipe, "-z", "lz4", stdin=data).code == 0
    assert piped("consume", through_pipe, "-e").out == data.decode()


def test_groups(cli: Cli, piped: Cli, broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    group = f"group-{topic}"
    cli("topic", "create", topic, "-p", "2")
    piped("produce", topic, "-p", "0", stdin=b"0\n1\n2\n3\n4\n")
    plan = cli("group", "reset-offsets", group, "-t", topic, "--to", "earliest")
    assert plan.rows() == [[topic, "0", "-", "0"], [topic, "1", "-", "0"]]
    assert "--execute" in plan.err
    assert cli("group", "describe", group).code == 1
    assert cli("group", "reset-offsets", group, "-t", topic, "--to", "1", "--execute").code == 0

    (described,) = cli("group", "describe", group, "--json").json()
    assert described["state"] == "Empty"
    assert described["lag"] == 4
    assert [row[:6] for row in cli("group", "describe", group).rows()] == [
        [group, topic, "0", "1", "5", "4"],
        [group, topic, "1", "0", "0", "0"],
    ]
    first, second = described["partitions"]  # type: ignore[misc]
    assert (first["committed"], first["end"], first["lag"]) == (1, 5, 4)
    assert 0 < first["lag_seconds"] < 600
    assert (second["committed"], second["lag"], second["lag_seconds"]) == (0, 0, 0)
    assert [group, "Empty"] in [row[:2] for row in cli("group", "list").rows()]

    beyond = cli("group", "reset-offsets", group, "-t", topic, "--to", "999999")
    assert "is taken for 999,999" in beyond.err
    shifted = cli("group", "reset-offsets", group, "--shift-by", "2", "--execute", "--json").json()
    assert [row["to"] for row in shifted] == [3, 0]
    by_time = cli("group", "reset-offsets", group, "--by-duration", "1h", "--json").json()
    assert [row["to"] for row in by_time] == [0, 0]
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.alter_group_offsets(group, {TopicPartition(topic, 0): 5}).get_all()
    (caught_up,) = cli("group", "describe", group, "--json").json()
    assert (caught_up["lag"], caught_up["lag_seconds"]) == (0, 0.0)
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.alter_group_offsets(group, {TopicPartition(topic, 0): 3}).get_all()
        admin.delete_records({TopicPartition(topic, 0): 4}).get_all()
    (out_of_range,) = cli("group", "describe", group, "--json").json()
    assert (out_of_range["lag"], out_of_range["lag_seconds"]) == (2, 0.0)
    every = {each["group"] for each in cli("group", "describe", "--all", "--json").json()}
    assert group in every
    assert cli("group", "describe").code == cli("group", "describe", group, "--all").code == 2

    forgotten = cli("group", "delete-offsets", group, "-t", topic, "-p", "0")
    assert forgotten == (0, f"deleted\t{group}\t{topic}\t0\n", "")
    nothing = cli("group", "delete-offsets", group, "-t", topic, "-p", "0")
    assert (nothing.code, nothing.err) == (
        1,
        f"millstream: group {group} has no committed offsets for {topic} 0\n",
    )
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        left = admin.list_group_offsets([group])[group].get()
    assert [each.partition for each in left] == [1]

    assert cli("group", "delete", group) == (0, f"deleted\tgroup\t{group}\n", "")
    gone = cli("group", "delete", group)
    assert (gone.code, "no such group" in gone.err) == (1, True)


def test_where_partitions_begin_and_end(cli: Cli, piped: Cli, new_topic: Topics) -> None:
    topic = new_topic()
    cli("topic", "create", topic, "-p", "2")
    piped("produce", topic, "-p", "0", stdin=b"0\n1\n2\n3\n4\n")
    assert cli("topic", "offsets", topic).rows() == [
        [topic, "0", "0", "5", "5"],
        [topic, "1", "0", "0", "0"],
    ]
    (newest,) = cli("topic", "offsets", topic, "-p", "0", "--at", "max-timestamp", "--json").json()
    assert 0 <= newest["offset"] < 5  # type: ignore[operator]
    written = newest["timestamp"]
    assert cli("topic", "offsets", topic, "--at", f"@{written + 1}").rows() == [  # type: ignore[operator]
        [topic, "0", "-", "-"],
        [topic, "1", "-", "-"],
    ]
    refused = cli("topic", "offsets", topic, "-p", "7")
    assert (refused.code, "none is 7" in refused.err) == (1, True)

    plan = cli("topic", "delete-records", topic, "--before", "3", "-p", "0")
    assert plan.rows() == [[topic, "0", "0", "3", "3"]]
    assert "add --execute" in plan.err
    assert cli("topic", "offsets", topic, "-p", "0").rows() == [[topic, "0", "0", "5", "5"]]
    assert cli("topic", "delete-records", topic, "--before", "9", "--execute").code == 1
    done = cli("topic", "delete-records", topic, "--before", "3", "-p", "0", "--execute")
    assert (done.code, done.err) == (0, f"millstream: deleted up to 3 records of {topic}\n")
    assert cli("topic", "offsets", topic, "-p", "0").rows() == [[topic, "0", "3", "5", "2"]]
    assert cli("topic", "delete-records", topic, "--before", "end", "--execute").code == 0
    assert cli("topic", "offsets", topic, "-p", "0").rows() == [[topic, "0", "5", "5", "0"]]
    assert cli("topic", "alter", topic, "-r", "2").err == (
        "millstream: --replication-factor 2: a broker can have one replica of a partition, and the "
        "cluster has 1 live broker\n"
    )


def test_what_a_topic_is_like(cli: Cli, piped: Cli, new_topic: Topics) -> None:
    topic = new_topic()
    cli("topic", "create", topic, "-p", "2")
    piped("produce", topic, "-p", "0", "-K", ":", stdin=b"a:1\na:22\nb:333\na:4444\n")
    piped("produce", topic, "-p", "1", stdin=b"none\n")
    (found,) = [json.loads(cli("topic", "analyze", topic, "--json").out)]
    assert (found["read"], found["null_keys"], found["distinct_keys"]) == (5, 1, 2)
    assert found["value_bytes"] == {"p50": 3, "p95": 4, "p99": 4, "max": 4}
    assert found["heaviest_keys"][0] == {"key": "a", "share": 0.75}
    assert found["skew"] == 1.6
    assert [each["read"] for each in found["partitions"]] == [4, 1]
    newest = json.loads(cli("topic", "analyze", topic, "-n", "2", "--json").out)
    assert (newest["read"], newest["value_bytes"]["max"]) == (2, 4)
    rows = cli("topic", "analyze", topic).rows()
    assert [row[:3] for row in rows] == [[topic, "0", "4"], [topic, "1", "1"]]
    empty = new_topic()
    cli("topic", "create", empty)
    assert cli("topic", "analyze", empty).rows() == [[empty, "0", "0", "0", "0", "-"]]


def test_how_fast_it_is(cli: Cli, new_topic: Topics) -> None:
    topic = new_topic()
    cli("topic", "create", topic, "-p", "2")
    empty = cli("bench", "consume", topic)
    assert (empty.code, "has no records to read" in empty.err) == (1, True)
    written = json.loads(cli("bench", "produce", topic, "-n", "500", "--json").out)
    assert written["records"] == 500
    assert set(written["latency_ms"]) == {"p50", "p95", "p99", "p99.9", "max"}
    read = json.loads(cli("bench", "consume", topic, "--json").out)
    assert read["records"] == 500
    through = json.loads(cli("bench", "end-to-end", topic, "-n", "20", "--json").out)
    assert through["records"] == 20
    paced = cli("bench", "end-to-end", topic, "-n", "20", "--throughput", "200")
    (row,) = paced.rows()
    assert (row[:2], len(row)) == ([topic, "20"], 10)
    assert cli("bench", "produce", "no-such-topic", "-n", "1").code == 1
    refused = cli("bench", "produce", topic, "-n", "1", "-s", "3MB")
    assert (refused.code, "max.request.size" in refused.err) == (1, True), refused.err


def test_versions_of_requests(cli: Cli) -> None:
    rows = cli("cluster", "api-versions", "--json").json()
    (produce,) = [row for row in rows if row["api"] == "Produce"]
    assert produce["key"] == 0
    assert produce["used"] == produce["highest"]
    assert len(rows) > 60
    assert cli("cluster", "api-versions", "--broker", "77").err == (
        "millstream: there is no live broker 77\n"
    )


def test_files_of_a_partition(
    cli: Cli, piped: Cli, broker: BrokerProcess, new_topic: Topics
) -> None:
    topic = new_topic()
    cli("topic", "create", topic)
    piped("produce", topic, "-k", "key", stdin=b"0\n1\n")
    directory = broker.data_directory / f"{topic}-0"
    for path in sorted(directory.iterdir()):
        assert cli("log", "dump", str(path)).code == 0, path
    (log,) = directory.glob("*.log")
    lines = cli("log", "dump", "--records", "--json", str(log)).out.splitlines()
    records = [record for line in lines for record in json.loads(line)["records"]]
    assert [(r["offset"], r["key"], r["value"]) for r in records] == [
        (0, "key", "0"),
        (1, "key", "1"),
    ]
    metadata = json.loads(cli("log", "dump", "--json", str(directory / "partition.metadata")).out)
    (described,) = cli("topic", "describe", topic, "--json").json()
    assert metadata["topic_id"] == described["topic_id"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_following_a_topic_until_a_signal(
    piped: Cli, broker: BrokerProcess, new_topic: Topics, number: signal.Signals, code: int
) -> None:
    topic = new_topic()
    piped("produce", topic, stdin=b"before\n")
    with subprocess.Popen(
        command("consume", topic),
        env=environment(broker),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as follower:
        assert follower.stdout is not None
        assert follower.stderr is not None
        assert follower.stdout.readline() == b"before\n"
        piped("produce", topic, stdin=b"after\n")
        assert follower.stdout.readline() == b"after\n"
        follower.send_signal(number)
        assert follower.wait(60) == code
        assert follower.stderr.read() == b""


def test_a_line_too_long_for_a_topic_that_is_not_there_yet_is_named(
    cli: Cli, new_topic: Topics, tmp_path: Path
) -> None:
    topic = new_topic()
    file = tmp_path / "lines"
    file.write_bytes(b"short\n" + b"x" * 3_000_000 + b"\nlast\n")
    refused = cli("ingest", str(file), "-t", topic)
    assert refused.code == 1
    assert f"line 2 of {file}: 3,000,000 bytes are too long" in refused.err
    assert f"millstream topic create {topic} --config max.message.bytes=" in refused.err
    other = new_topic()
    assert cli("ingest", str(file), "-t", other, "--on-error", "skip").code == 0
    assert cli("consume", other, "-e").out == "short\nlast\n"
    again = cli("ingest", str(file), "-t", other, "-p", "9", "--on-error", "skip")
    assert (again.code, f"{other} is there, with 1 partition:" in again.err) == (0, True)


def test_a_header_that_is_given_twice_is_sent_twice(piped: Cli, new_topic: Topics) -> None:
    topic = new_topic()
    assert piped("produce", topic, "-H", "a=1", "-H", "b=2", "-H", "a=3", stdin=b"x\n").code == 0
    assert piped("consume", topic, "-e", "-f", "%h %s\\n").out == "a=1,b=2,a=3 x\n"
    refused = piped("produce", topic, "-K", "", stdin=b"a:1\n")
    assert (refused.code, "it is empty" in refused.err) == (2, True)


def test_lines_are_sent_while_the_input_is_open(
    cli: Cli, broker: BrokerProcess, new_topic: Topics
) -> None:
    topic = new_topic()
    with subprocess.Popen(
        command("produce", topic), env=environment(broker), stdin=subprocess.PIPE
    ) as producer:
        assert producer.stdin is not None
        producer.stdin.write(b"first\n")
        producer.stdin.flush()
        deadline = time.monotonic() + 20
        while cli("consume", topic, "-e").out != "first\n":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        producer.stdin.close()
        assert producer.wait(20) == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_line_that_was_read_is_sent_before_the_end(
    piped: Cli, broker: BrokerProcess, new_topic: Topics, number: signal.Signals, code: int
) -> None:
    topic = new_topic()
    with produce_first_line(topic, broker) as producer:
        write_and_wait_until_read(producer, b"second\nhalf a li")
        producer.send_signal(number)
        assert producer.wait(60) == code
    assert piped("consume", topic, "-e").out == "first\nsecond\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_end_does_not_wait_for_a_broker_that_hangs(
    broker: BrokerProcess, new_topic: Topics, number: signal.Signals, code: int
) -> None:
    with produce_first_line(new_topic(), broker) as producer:
        os.kill(broker.process.pid, signal.SIGSTOP)
        try:
            write_and_wait_until_read(producer, b"second\n")
            producer.send_signal(number)
            assert producer.wait(60) == code  # a record expires after 120 seconds
            assert producer.stderr is not None
            assert b"1 record may not have arrived" in producer.stderr.read()
        finally:
            os.kill(broker.process.pid, signal.SIGCONT)


@contextmanager
def produce_first_line(topic: str, broker: BrokerProcess) -> Iterator[subprocess.Popen[bytes]]:
    """Run `produce` and return once the broker has its first line."""
    with subprocess.Popen(
        command("produce", topic),
        env=environment(broker),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as producer:
        try:
            assert producer.stdin is not None
            producer.stdin.write(b"first\n")
            producer.stdin.flush()
            with Consumer(
                bootstrap_servers=broker.bootstrap, default_api_timeout_ms=60_000
            ) as consumer:
                place = TopicPartition(topic, 0)
                deadline = time.monotonic() + 60
                while consumer.end_offsets([place])[place] < 1:
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
            yield producer
        finally:
            producer.kill()


def write_and_wait_until_read(producer: subprocess.Popen[bytes], data: bytes) -> None:
    assert producer.stdin is not None
    producer.stdin.write(data)
    producer.stdin.flush()
    deadline = time.monotonic() + 60
    while waiting_bytes(producer.stdin.fileno()):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def waiting_bytes(descriptor: int) -> int:
    """Return how many bytes nobody has read yet from the pipe that ``descriptor`` writes to."""
    (count,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))
    return int(count)


def test_a_reader_that_has_seen_enough(
    piped: Cli, broker: BrokerProcess, new_topic: Topics
) -> None:
    topic = new_topic()
    piped("produce", topic, stdin=b"a line\n" * 200_000)
    with subprocess.Popen(
        command("consume", topic, "-e"),
        env=environment(broker),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        assert consumer.stdout.readline() == b"a line\n"
        consumer.stdout.close()
        consumer.wait(20)
        assert consumer.stderr.read() == b""


def test_a_shell_completes_names_of_the_cluster(broker: BrokerProcess, cli: Cli) -> None:
    for name in ("tabbed-one", "tabbed-two"):
        assert cli("topic", "create", name).code == 0

    def completed(*words: str, where: str = broker.bootstrap) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-m", "millstream.cli.main"],
            env={
                **os.environ,
                "MILLSTREAM_BOOTSTRAP_SERVERS": where,
                "_MILLSTREAM_COMPLETE": "complete_bash",
                "COMP_WORDS": " ".join(["millstream", *words]),
                "COMP_CWORD": str(len(words)),
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert not done.stderr
        return done.stdout.split()

    assert completed("topic", "describe", "tabbed-") == ["tabbed-one", "tabbed-two"]
    assert completed("acl", "add", "--topic", "tabbed-t") == ["tabbed-two"]
    assert completed("topic", "delete-r") == ["delete-records"]
    at = ("-b", broker.bootstrap)
    assert completed("consume", *at, "tabbed-o", where="127.0.0.1:1") == ["tabbed-one"]
    assert completed("consume", "tabbed-o", where="127.0.0.1:1") == [], "and no word of an error"
