"""What a load tells while it runs: lines, metrics for Prometheus, OpenLineage events."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.broker_process import BrokerProcess
from tests.system.lakehouse.topic_site import TopicSite
from tests.waiting import wait_until

from millstream.cli.main import main
from millstream.spark.lakehouse.jobs import run_load
from millstream.spark.lakehouse.load_metrics import MetricsServer
from millstream.spark.lakehouse.reject_limit import TooManyRejectsError
from millstream.spark.lakehouse.table import TableName

pytestmark = pytest.mark.system


@pytest.fixture
def site(broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path) -> TopicSite:
    made = TopicSite(broker.bootstrap, new_topic(), tmp_path)
    made.create(1)
    return made


def clicks(count: int) -> list[bytes]:
    return [json.dumps({"n": n, "site": None if n % 2 else "a"}).encode() for n in range(count)]


def scraped(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    lines = re.findall(r"^(millstream_load_\w+)\{load=.*?\} (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in lines}


def test_metrics_of_a_load(site: TopicSite) -> None:
    site.write(0, [*clicks(200), b"rubbish"])
    site = site.using(
        table=TableName("delta", site.directory / "t"), format="json", batch_bytes=4_000
    )
    with MetricsServer(0) as server:
        metrics = server.load("clicks", "delta:t")
        assert scraped(server.port)["millstream_load_rows_total"] == 0
        seen = []
        run_load(
            site.settings,
            on_batch=lambda _: seen.append(scraped(server.port)),
            observers=[metrics],
        )
        last = scraped(server.port)
    assert last["millstream_load_rows_total"] == 200
    assert last["millstream_load_dead_letters_total"] == 1
    assert last["millstream_load_batches_total"] == len(seen) > 2
    assert last["millstream_load_batch_seconds_count"] == len(seen)
    assert last["millstream_load_offsets_behind"] == 0
    assert last["millstream_load_lag_seconds"] == 0
    assert last["millstream_load_seconds_to_go"] == 0
    assert last["millstream_load_running"] == 0
    in_the_middle = seen[1]
    assert in_the_middle["millstream_load_running"] == 1
    assert 0 < in_the_middle["millstream_load_offsets_behind"] < 201
    assert in_the_middle["millstream_load_lag_seconds"] > 1_000_000, "the records are of 2023"
    sizes = [file.size_bytes for file in site.table.data_directory.found_files()]
    assert 0 < last["millstream_load_written_bytes_total"] < sum(sizes)


def test_the_command_serves_metrics_and_tells_each_batch(site: TopicSite, tmp_path: Path) -> None:
    site.write(0, clicks(200))
    words = ["load", site.topic, "--to", f"parquet:{tmp_path}/t", "--engine", "local", "--follow"]
    words += ["--batch-size", "4KB", "--metrics-port", "0", "-b", site.bootstrap]
    with subprocess.Popen(
        [sys.executable, "-m", "millstream.cli.main", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as load:
        try:
            assert load.stderr is not None
            told = load.stderr.readline()
            port = int(re.fullmatch(r"metrics at http://127.0.0.1:(\d+)/metrics\n", told)[1])  # type: ignore[index]
            first = load.stderr.readline()
            assert re.match(r"batch 1: \d+ rows, 1 file, .* rows/s, .*/s, \d+ offsets", first)
            assert re.search(r"behind, lag \d+ d, .* to go$", first)
            for line in load.stderr:
                if ", 0 offsets behind" in line:
                    break
            # The line is printed before the metrics are set.
            wait_until(lambda: scraped(port)["millstream_load_rows_total"] == 200, "all rows")
            load.send_signal(signal.SIGINT)
            assert load.wait(60) == 0
        finally:
            load.kill()


def test_a_port_that_is_taken(site: TopicSite, capsys: pytest.CaptureFixture[str]) -> None:
    with MetricsServer(0) as server:
        words = ["load", site.topic, "--to", "parquet:t", "--engine", "local"]
        assert main([*words, "--metrics-port", str(server.port), "-b", site.bootstrap]) == 1
        assert f"cannot listen on 127.0.0.1:{server.port}" in capsys.readouterr().err


# --- lineage -------------------------------------------------------------------------------------


def test_events_in_a_file(site: TopicSite, tmp_path: Path) -> None:
    pytest.importorskip("openlineage.client")
    site.write(0, [*clicks(200), b"rubbish"])
    file, table = tmp_path / "events.jsonl", tmp_path / "lake" / "clicks"
    words = ["load", site.topic, "--to", f"delta:{table}", "--engine", "local", "--format", "json"]
    assert main([*words, "--lineage", str(file), "-b", site.bootstrap, "--json"]) == 0
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert [each["eventType"] for each in events] == ["START", "RUNNING", "COMPLETE"]
    assert len({each["run"]["runId"] for each in events}) == 1
    start, _, done = events
    topic = {"namespace": f"kafka://{site.bootstrap}", "name": site.topic}
    assert topic.items() <= start["inputs"][0].items()
    (out, letters) = done["outputs"]
    assert (out["namespace"], out["name"]) == ("file", str(table))
    assert letters["name"] == f"{table}_dead_letters"
    assert letters["outputFacets"]["outputStatistics"]["rowCount"] == 1
    statistics = out["outputFacets"]["outputStatistics"]
    sizes = [each.stat().st_size for each in table.glob("*.parquet")]
    assert (statistics["rowCount"], statistics["size"]) == (200, sum(sizes))
    fields = {each["name"]: each["type"] for each in out["facets"]["schema"]["fields"]}
    assert fields["n"] == "int64"
    assert fields["_offset"] == "int64"
    columns = out["facets"]["dataQualityMetrics"]["columnMetrics"]
    assert (columns["n"]["min"], columns["n"]["max"], columns["n"]["nullCount"]) == (0, 199, 0)
    assert (columns["site"]["nullCount"], columns["site"]["count"]) == (100, 100)
    assert done["inputs"][0]["inputFacets"]["inputStatistics"]["rowCount"] == 201
    assert done["job"]["facets"]["jobType"]["processingType"] == "BATCH"


def test_events_of_tables_of_several_topics(
    site: TopicSite, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    pytest.importorskip("openlineage.client")
    other = TopicSite(site.bootstrap, f"{site.topic}-b", tmp_path)
    other.create(1)
    for each, count in ((site, 20), (other, 30)):
        each.write(0, clicks(count))
    file = tmp_path / "events.jsonl"
    words = ["load", f"{site.topic},{other.topic}", "--to", f"parquet:{tmp_path}/lake/{{topic}}"]
    words += ["--engine", "local", "--lineage", f"file://{file}", "-b", site.bootstrap, "--json"]
    assert main(words) == 0
    done = json.loads(file.read_text().splitlines()[-1])
    counts = {
        each["name"]: each["outputFacets"]["outputStatistics"]["rowCount"]
        for each in done["outputs"]
    }
    lake = tmp_path / "lake"
    assert counts == {f"{lake}/{site.topic}": 20, f"{lake}/{other.topic}": 30}
    assert {each["name"] for each in done["inputs"]} == {site.topic, other.topic}


@contextmanager
def receiver() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """An OpenLineage server: where it is, and what it has got."""
    events: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            events.append({"path": self.path, **json.loads(body)})
            self.send_response(201)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", events
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_load_that_fails_over_http_in_the_run_of_a_scheduler(
    site: TopicSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openlineage.client")
    from millstream.spark.lakehouse.lineage import Lineage
    from millstream.spark.lakehouse.reject_limit import parse_reject_limit

    parent = "01941f29-7c00-7087-8940-40e567126a66"
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"airflow/lake.load/{parent}")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "lake")
    site.write(0, [*clicks(5), b"rubbish", b"rubbish"])
    site = site.using(format="json", max_rejects=parse_reject_limit("1"))
    with receiver() as (url, events), pytest.raises(TooManyRejectsError):
        run_load(site.settings, observers=[Lineage(site.settings, url)])
    assert [each["eventType"] for each in events] == ["START", "FAIL"]
    assert events[0]["path"] == "/api/v1/lineage"
    facets = events[1]["run"]["facets"]
    assert "2 records cannot be read" in facets["errorMessage"]["message"]
    assert facets["parent"]["run"]["runId"] == parent
    job = facets["parent"]["job"]
    assert (job["namespace"], job["name"]) == ("airflow", "lake.load")
    assert events[1]["job"]["namespace"] == "lake"


def test_a_lineage_server_that_is_away_costs_no_load(
    site: TopicSite, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("openlineage.client")
    from millstream.spark.lakehouse.lineage import Lineage

    site.write(0, clicks(5))
    with receiver() as (url, _):
        pass
    run_load(site.settings, observers=[Lineage(site.settings, url)])
    assert len(site.rows("offset")) == 5
    assert "Lineage: " in caplog.text
