"""Commits the batches of a load: checks what was landed, then changes table and ledger at once."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse import ledger as ledgers
from millstream.spark.lakehouse.batches import BatchReport, Plan, Ready
from millstream.spark.lakehouse.data_files import SUFFIX, DataFile, orphans
from millstream.spark.lakehouse.dead_letter_commits import DeadLetterCommits
from millstream.spark.lakehouse.dead_letter_topic import DeadLetterTopic
from millstream.spark.lakehouse.file_writer import FileRules
from millstream.spark.lakehouse.lag import batch_lag
from millstream.spark.lakehouse.landing import Landed, reached_by
from millstream.spark.lakehouse.ledger import REJECTS, Ledger
from millstream.spark.lakehouse.reject_limit import add_reasons
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import ConcurrentLoadError, Table
from millstream.spark.lakehouse.topic_reader import TopicEnds, TopicReader
from millstream.spark.lakehouse.upserts import Upserts, partition_counts
from millstream.spark.lakehouse.widening import changed_columns
from millstream.spark.lakehouse.written_files import WrittenFileError, check_written
from millstream.spark.leader_epochs import join

log = logging.getLogger(__name__)

_LOOKS_FOR_ORPHANS: Final = 2
"""How many commits look for files of a load that crashed: it had one batch to commit, and one that
was landed ahead.
"""


class Commits:
    """The commits of one load; ``dead_letters`` is the table of its dead letters.

    Those of all its commits are counted in ``rejected``, which outlives the load, as
    ``counted_as``.
    """

    def __init__(
        self,
        settings: LoadSettings,
        table: Table,
        dead_letters: Table,
        *,
        upserts: Upserts | None,
        rejected: Counter[str],
        counted_as: str = "",
    ) -> None:
        self._settings = settings
        self._app_id = settings.load_id
        self._table = table
        self._dead_letters = dead_letters
        self._upserts = upserts
        self._rejects = DeadLetterCommits(dead_letters, self._app_id)
        self._rejected = rejected
        self._counted_as = counted_as
        self._trimmed: set[TopicPartition] = set()
        self._looks_for_orphans = _LOOKS_FOR_ORPHANS
        self._committed = 0.0
        self._dead_letter_topic = (
            DeadLetterTopic(
                settings.dead_letters_topic, dead_letters, self._app_id, settings.source
            )
            if settings.dead_letters_topic
            else None
        )

    # --- dead letters that are not of this batch -------------------------------------------------

    def send_dead_letters(self) -> None:
        """Send dead letters that a crashed load has not sent."""
        if self._dead_letter_topic is not None:
            self._dead_letter_topic.send()

    def untrimmed(self, ends: TopicEnds) -> list[TopicPartition]:
        """Return partitions whose dead letters nobody has compared with the table yet."""
        return [each for each in ends.topic_partitions if each not in self._trimmed]

    def trim(self, positions: Mapping[TopicPartition, int], ends: TopicEnds) -> None:
        """Delete dead letters that are ahead of the table; ``positions`` are where it goes on."""
        self._rejects.trim(self._table, positions, ends.topic_ids)
        self._trimmed.update(positions)

    def settle(self, ledger: Ledger) -> None:
        """Commit the dead letters that the table's commit has named, and send them."""
        paths = self._rejects.settle(ledger)
        if paths and self._dead_letter_topic is not None:
            self._dead_letter_topic.send(paths)

    # --- a batch ---------------------------------------------------------------------------------

    def check(
        self, plan: Plan, landed: Sequence[Landed], schema: pa.Schema, reader: TopicReader
    ) -> Ready:
        """Check what was landed, once the batch before is in the table; ``schema`` are the columns
        that it was landed with. Raises what must not be committed.
        """
        dead_letters = [file for each in landed for file in each.dead_letters]
        reasons = add_reasons(each.reasons for each in landed)
        rejected = sum(each.rejected for each in landed)
        self._settings.max_rejects.check(
            records=rejected + sum(each.rows for each in landed),
            rejected=rejected,
            before=self._rejected[self._counted_as],
            why=reasons,
        )
        self._check_dead_letters(plan, dead_letters)
        epochs = {
            each.topic_partition: join(part.epochs.get(each.topic_partition, ()) for part in landed)
            for each in plan.ranges
        }
        reader.check_unchanged(plan.ends, epochs)
        known = [*plan.ranges, *plan.beginnings]
        ends = plan.ends
        entries = ledgers.after(plan.ledger, known, ends.topic_ids, epochs, counts=ends.counts)
        if dead_letters:
            entries[REJECTS] = self._rejects.note(
                plan.batch, plan.ranges, plan.ends.topic_ids, dead_letters
            )
        return Ready(plan=plan, landed=landed, schema=schema, entries=entries, reasons=reasons)

    def _check_dead_letters(self, plan: Plan, files: Sequence[DataFile]) -> None:
        try:
            check_written(self._dead_letters.staging_directory, files)
        except WrittenFileError:
            known = self._table.ledger(self._app_id, ledgers.keys([]))
            if Ledger(known).batch != plan.ledger.batch:  # and has removed them
                raise ConcurrentLoadError(
                    f"{self._table.name}: another load of {self._app_id} has committed"
                ) from None
            raise

    def commit(self, ready: Ready, rules: FileRules, reader: TopicReader) -> BatchReport:
        """Commit the files of a batch to the table, and with them its dead letters.

        ``rules`` say how the table's files are written.
        """
        plan, landed = ready.plan, ready.landed
        # Not before: planning the next batch takes time, and so do the commits of other tables.
        if ready.files and any(changed_columns(self._table.schema(), ready.schema)):
            raise ConcurrentLoadError(f"{self._table.name}: another load has changed its columns")
        self._commit(ready, rules)
        self._rejected[self._counted_as] += ready.rejected  # whatever fails from here on
        if ready.rejected:
            self.settle(ready.ledger)
        self._after_commit(reader, plan)
        since, self._committed = max(plan.started, self._committed), time.monotonic()
        return BatchReport(
            batch=plan.batch,
            rows=sum(each.rows for each in landed),
            dead_letters=ready.rejected,
            reasons=ready.reasons,
            read_bytes=sum(sum(each.read_bytes.values()) for each in landed),
            files=len(ready.files),
            behind=plan.behind,
            seconds=self._committed - since,
            offsets=sum(each.size for each in plan.ranges),
            written_bytes=sum(file.size_bytes for file in ready.files),
            lag_seconds=batch_lag(plan.ranges, plan.ends.latest, reached_by(landed), time.time()),
            paths=[file.path for file in ready.files],
        )

    def _commit(self, ready: Ready, rules: FileRules) -> None:
        known, entries, files = ready.plan.ledger.entries, ready.entries, ready.files
        expected = {key: known[key] for key in entries if key in known}
        if self._upserts is None or not files:
            self._table.commit(self._app_id, entries, files, expected=expected)
            return
        self._upserts.commit(
            self._app_id,
            entries,
            files,
            expected=expected,
            rules=rules,
            partitions=partition_counts(list(ready.plan.ends.latest)),
        )

    def look_for_orphans_again(self) -> None:
        """Have the next commit look for files that no commit names."""
        self._looks_for_orphans = max(self._looks_for_orphans, 1)

    def _after_commit(self, reader: TopicReader, plan: Plan) -> None:
        if self._upserts is not None:
            self._upserts.forget(self._app_id, batch=plan.batch)
        if self._looks_for_orphans:
            self._looks_for_orphans -= 1
            for table in (self._table, self._dead_letters):
                if table.exists():
                    remove_orphans(table, self._app_id, batch=plan.batch)
        if self._settings.group:
            positions = {each.topic_partition: each.end for each in plan.ranges}
            reader.commit_to_group(self._settings.group, positions)

    def discard(self, landed: Sequence[Landed]) -> None:
        """Remove the files of a batch that will not be committed."""
        directory = self._table.staging_directory
        if self._upserts is not None:
            directory = self._upserts.directory
        for each in landed:
            for file in each.files:
                (directory / file.path).unlink(missing_ok=True)
            for file in each.dead_letters:
                (self._dead_letters.staging_directory / file.path).unlink(missing_ok=True)


def remove_orphans(table: Table, app_id: str, *, batch: int) -> list[str]:
    """Remove files of batches up to ``batch`` that no commit references; return their paths."""
    root = table.staging_directory
    names = [each.path for each in root.found_files() if each.path.endswith(SUFFIX)]
    found = orphans(app_id, batch=batch, names=names, referenced=set(table.files()))
    if found:  # older states are many, and to ask for them takes long
        found = orphans(app_id, batch=batch, names=found, referenced=table.retained())
    for name in found:
        (root / name).unlink(missing_ok=True)
    if found:
        log.info("%s: removed %d files of crashed batches", table.name, len(found))
    return found
