"""OpenLineage events of a load: which topics went into which table, with its columns.

A run of a load is a run of a job. START names the topics and the table; RUNNING comes after the
first batch and once a minute after others; COMPLETE, FAIL or ABORT (stopped before the end) comes
last, with the columns of the table, rows and bytes that were written, and the nulls and ends of the
columns in the files of this run.

Events go through OpenLineage's own client (extra ``[lineage]``). What cannot be sent is logged and
does not end the load.
"""

from __future__ import annotations

import logging
import os
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from millstream import __version__
from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.lineage_datasets import (
    ColumnStatistics,
    place_name,
    table_facets,
    table_of,
    topic_name,
    topics_of,
)
from millstream.spark.lakehouse.load_observers import LoadObserver
from millstream.spark.lakehouse.table import TableName, dead_letters_of, open_table
from millstream.spark.options import load_source, parse_options

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import InputDataset, OutputDataset, RunState

    from millstream.spark.lakehouse.batches import BatchReport
    from millstream.spark.lakehouse.settings import LoadSettings

log = logging.getLogger(__name__)

PRODUCER: Final = f"https://pypi.org/project/millstream/{__version__}"
OWN_CONFIGURATION: Final = "config"
RUNNING_EVERY_S: Final = 60.0
_TIMEOUT_S: Final = 5.0
_CLOSE_S: Final = 10.0


def make_client(place: str) -> OpenLineageClient:
    """Return a client that sends events to a URL or appends them to a file, one in a line.

    ``config`` is for what OpenLineage's environment variables and ``openlineage.yml`` say.
    ConfigError without the extra, or for a configuration that OpenLineage does not take.
    """
    try:
        from openlineage.client import OpenLineageClient
    except ImportError:
        raise ConfigError("lineage needs OpenLineage: pip install 'millstream[lineage]'") from None
    transport: dict[str, Any] | None
    if place == OWN_CONFIGURATION:
        transport = None
    elif place.startswith(("http://", "https://")):
        transport = {"type": "http", "url": place, "timeout": _TIMEOUT_S, "retry": {"total": 1}}
        if key := os.environ.get("OPENLINEAGE_API_KEY"):
            transport["auth"] = {"type": "api_key", "apiKey": key}
    else:
        path = place.removeprefix("file://")
        transport = {"type": "file", "log_file_path": path, "append": True}
    try:
        return OpenLineageClient(config=None if transport is None else {"transport": transport})
    except Exception as error:  # it raises whatever its configuration makes it raise
        raise ConfigError(f"lineage to {place}: {error}") from error


class _Written:
    """What this run has written to one table."""

    def __init__(self) -> None:
        self.rows = 0
        self.size_bytes = 0
        self.files = 0
        self.rejected = 0
        self.columns = ColumnStatistics()

    def add(self, report: BatchReport, name: TableName) -> None:
        self.rows += report.rows
        self.size_bytes += report.written_bytes
        self.files += report.files
        self.rejected += report.dead_letters
        if report.paths:
            self.columns.add(open_table(name).data_directory, report.paths)


class Lineage(LoadObserver):
    """Sends the events of one load; ConfigError as :func:`make_client`.

    The job's namespace is ``OPENLINEAGE_NAMESPACE`` (by default ``millstream``). A scheduler that
    sets ``OPENLINEAGE_PARENT_ID`` (namespace/job/run) becomes the run's parent.
    """

    def __init__(self, settings: LoadSettings, place: str = OWN_CONFIGURATION) -> None:
        self._client = make_client(place)
        from openlineage.client.uuid import generate_new_uuid

        self._settings = settings
        self._options = parse_options(load_source(settings.source), streaming=True)
        self._run_id = str(generate_new_uuid())
        self._topics: list[str] = []
        self._written: dict[str, _Written] = {}
        self._read = _Read()
        self._told = -RUNNING_EVERY_S

    def started(self) -> None:
        """Send START."""
        from openlineage.client.event_v2 import RunState

        try:
            self._topics = topics_of(self._options)
        except Exception as error:  # the load itself will say what is wrong with its brokers
            log.warning("lineage: the topics are not known yet: %s", error)
        self._send(RunState.START)

    def batch(self, report: BatchReport) -> None:
        """Take note of a batch; send RUNNING when that is due."""
        from openlineage.client.event_v2 import RunState

        for topic, each in (report.by_topic or {"": report}).items():
            if topic and topic not in self._topics:
                self._topics.append(topic)
            name = table_of(self._settings.table, topic)
            self._written.setdefault(str(name), _Written()).add(each, name)
        self._read.add(report)
        if time.monotonic() >= self._told + RUNNING_EVERY_S:
            self._told = time.monotonic()
            self._send(RunState.RUNNING)

    def ended(self, error: BaseException | None, *, stopped: bool) -> None:
        """Send COMPLETE, FAIL or ABORT."""
        from openlineage.client.event_v2 import RunState

        if isinstance(error, Exception):
            self._send(RunState.FAIL, error)
        elif error is not None or (stopped and not self._settings.follow):
            self._send(RunState.ABORT)
        else:
            self._send(RunState.COMPLETE)
        self._client.close(_CLOSE_S)

    # --- the event -------------------------------------------------------------------------------

    def _send(self, state: RunState, error: Exception | None = None) -> None:
        from openlineage.client.event_v2 import Job, Run, RunEvent
        from openlineage.client.generated.job_type_job import JobTypeJobFacet

        settings = self._settings
        kind = JobTypeJobFacet(
            processingType="STREAMING" if settings.follow else "BATCH",
            integration="MILLSTREAM",
            jobType="JOB",
        )
        event = RunEvent(
            eventType=state,
            eventTime=datetime.now(UTC).isoformat(timespec="milliseconds"),
            producer=PRODUCER,
            run=Run(runId=self._run_id, facets=_run_facets(error)),
            job=Job(
                namespace=os.environ.get("OPENLINEAGE_NAMESPACE", "millstream"),
                name=f"{settings.load_id} into {settings.table}",
                facets={"jobType": kind},
            ),
            inputs=self._inputs(),
            outputs=self._outputs(),
        )
        self._client.emit(event)

    def _inputs(self) -> list[InputDataset]:
        from openlineage.client.event_v2 import InputDataset

        bootstrap = next(
            (
                text
                for name, text in self._settings.source.items()
                if name.lower() == "kafka.bootstrap.servers"
            ),
            None,
        )
        found = [
            InputDataset(*topic_name(self._options, bootstrap, topic)) for topic in self._topics
        ]
        if len(found) == 1 and self._read.records:
            found[0].inputFacets = {"inputStatistics": self._read.facet()}
        return found

    def _outputs(self) -> list[OutputDataset]:
        name = self._settings.table
        topics = self._topics if name.is_per_topic else [""]
        found = []
        for each in (table_of(name, topic) for topic in topics):
            written = self._written.get(str(each), _Written())
            try:
                found.append(_output(each, written))
            except Exception as error:  # of a store or a catalogue: the event goes without it
                log.warning("lineage: %s is left out: %s", each, error)
            if written.rejected:
                found.append(_dead_letters(each, written.rejected))
        return found


class _Read:
    def __init__(self) -> None:
        self.records = 0
        self._size_bytes = 0

    def add(self, report: BatchReport) -> None:
        self.records += report.rows + report.dead_letters
        self._size_bytes += report.read_bytes

    def facet(self) -> Any:
        from openlineage.client.generated.input_statistics_input_dataset import (
            InputStatisticsInputDatasetFacet,
        )

        return InputStatisticsInputDatasetFacet(rowCount=self.records, size=self._size_bytes)


def _run_facets(error: Exception | None) -> dict[str, Any]:
    from openlineage.client.generated.error_message_run import ErrorMessageRunFacet
    from openlineage.client.generated.parent_run import Job, ParentRunFacet, Run
    from openlineage.client.generated.processing_engine_run import ProcessingEngineRunFacet

    facets: dict[str, Any] = {
        "processing_engine": ProcessingEngineRunFacet(version=__version__, name="millstream")
    }
    if error is not None:
        facets["errorMessage"] = ErrorMessageRunFacet(
            message=str(error) or type(error).__name__, programmingLanguage="python"
        )
    parent = os.environ.get("OPENLINEAGE_PARENT_ID", "")
    namespace, slash, rest = parent.partition("/")
    job, _, run = rest.rpartition("/")
    if slash and job and run:
        facets["parent"] = ParentRunFacet(run=Run(runId=run), job=Job(namespace, job))
    return facets


def _output(name: TableName, written: _Written) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.generated.output_statistics_output_dataset import (
        OutputStatisticsOutputDatasetFacet,
    )

    table = open_table(name)
    facets: dict[str, Any] = {}
    if table.exists():
        namespace, called = place_name(table.data_directory)
        facets = table_facets(table)
    else:
        namespace, called = place_name(name.path)
    columns = written.columns.facet()
    if columns is not None:
        columns.rowCount, columns.bytes = written.rows, written.size_bytes
        columns.fileCount = written.files
        facets["dataQualityMetrics"] = columns
    statistics = OutputStatisticsOutputDatasetFacet(
        rowCount=written.rows, size=written.size_bytes, fileCount=written.files
    )
    return OutputDataset(
        namespace, called, facets=facets, outputFacets={"outputStatistics": statistics}
    )


def _dead_letters(name: TableName, count: int) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.generated.output_statistics_output_dataset import (
        OutputStatisticsOutputDatasetFacet,
    )

    statistics = OutputStatisticsOutputDatasetFacet(rowCount=count)
    place = dead_letters_of(name).path
    return OutputDataset(*place_name(place), outputFacets={"outputStatistics": statistics})
