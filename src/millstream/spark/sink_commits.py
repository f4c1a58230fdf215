"""How the driver commits the transactions of a micro-batch, and finishes what a driver left.

::

    tasks                    driver
    write, flush, prepare -> check that every transaction is open
                             journal: decided                 (sink_journal)
                             EndTxn(commit) for every task
                             journal: committed
                             abort what other attempts of the tasks left open

A transactional id belongs to one sink, task and attempt, ``<sink>-<task>-<attempt>``, so copies of
a task do not disturb each other: only what the driver commits becomes visible. The next batch uses
the ids again; its InitProducerId fences a straggler and aborts what it had open.

Transactions of several tasks cannot end at one instant. Readers of committed records that look
while the driver commits see a part of the batch, for the time of the commits; after a crash between
two of them, until the query starts again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.client import Admin
from millstream.client.core.producer.transactions import PreparedTransaction
from millstream.model.errors import KafkaError, MillstreamError
from millstream.spark.sink_journal import Journal

log = logging.getLogger(__name__)

_OPEN: Final = "Ongoing"


@dataclass(frozen=True, slots=True)
class SinkState:
    """What tasks have to know of the sink, as the driver found it when it planned a batch."""

    name: str
    last_committed: int
    begun_before: frozenset[int]

    def transactional_id(self, task: int, attempt: int) -> str:
        """Return the id of one attempt at one task."""
        return f"{self.name}-{task}-{attempt}"

    def is_committed(self, batch: int) -> bool:
        """Tell whether a batch is in its topics already.

        MillstreamError for one that an earlier version of the sink began to write.
        """
        if batch in self.begun_before and batch > self.last_committed:
            raise MillstreamError(
                f"micro-batch {batch} was begun by a version of the sink without transactions, and "
                "may be in the topics in part: finish it with that version, or start the query "
                "with another checkpoint"
            )
        return batch <= self.last_committed


class SinkCommits:
    """The driver's part in the transactions of one query's sink."""

    def __init__(
        self, journal: Journal, settings: Mapping[str, str], security: Mapping[str, str]
    ) -> None:
        self._journal = journal
        self._bootstrap_servers = settings["bootstrap.servers"]
        self._security = security

    def recover(self) -> SinkState:
        """Commit what an earlier driver had decided to; then return the sink's state.

        MillstreamError if that is not possible any more, because a transaction has timed out.
        """
        for batch, transactions in self._journal.decided().items():
            log.warning("micro-batch %d was not committed wholly: it is now", batch)
            with self._admin() as admin:
                self._end_decided(admin, batch, transactions)
        journal = self._journal
        return SinkState(journal.name(), journal.last_committed(), journal.begun_before())

    def commit(self, batch: int, transactions: Sequence[PreparedTransaction]) -> None:
        """Commit the transactions of a batch's tasks."""
        state = self.recover()
        with self._admin() as admin:
            if state.is_committed(batch):
                # The tasks were planned before that was known; what they wrote is there already.
                _end(admin, transactions, committed=False)
                return
            try:
                _check_open(admin, transactions)
            except MillstreamError:
                _end(admin, transactions, committed=False)
                raise
            self._journal.decide(batch, transactions)
            self._end_decided(admin, batch, transactions)
            _abort_leftovers(admin, state)

    def abort(self, batch: int, transactions: Sequence[PreparedTransaction]) -> None:
        """Abort what the tasks of a failed batch have prepared, unless it is decided."""
        if batch in self._journal.decided() or batch <= self._journal.last_committed():
            return
        with self._admin() as admin:
            _end(admin, transactions, committed=False)

    def _end_decided(
        self, admin: Admin, batch: int, transactions: Sequence[PreparedTransaction]
    ) -> None:
        errors = _end(admin, transactions, committed=True)
        if errors:
            names = ", ".join(f"{each.transactional_id} ({e})" for each, e in errors.items())
            raise MillstreamError(
                f"micro-batch {batch} is committed in part: {len(errors)} of {len(transactions)} "
                f"transactions could not be committed: {names}"
            )
        self._journal.finish(batch)

    def _admin(self) -> Admin:
        return Admin(
            self._security,
            bootstrap_servers=self._bootstrap_servers,
            client_id="millstream-sink",
        )


def _check_open(admin: Admin, transactions: Sequence[PreparedTransaction]) -> None:
    """Raise MillstreamError if a transaction has timed out, before any is committed."""
    names = {each.transactional_id: each for each in transactions}
    for name, outcome in admin.describe_transactions(names).items():
        found, prepared = outcome.get(), names[name]
        now = (found.state, found.producer_id, found.producer_epoch)
        if now != (_OPEN, prepared.producer_id, prepared.epoch):
            raise MillstreamError(
                f"the transaction {name} is not open any more ({found.state}): the micro-batch "
                "took longer than kafka.transaction.timeout.ms"
            )


def _end(
    admin: Admin, transactions: Sequence[PreparedTransaction], *, committed: bool
) -> dict[PreparedTransaction, KafkaError]:
    if not transactions:
        return {}
    return admin.end_transactions(transactions, committed=committed).errors


def _abort_leftovers(admin: Admin, state: SinkState) -> None:
    """Abort what attempts that lost or died have open: readers would wait for their timeout."""
    try:
        listed = admin.list_transactions(states=[_OPEN])
        left = [
            each.transactional_id
            for each in listed
            if each.transactional_id.startswith(f"{state.name}-")
        ]
        if left:
            log.info("aborting what attempts have left open: %s", ", ".join(left))
            admin.fence_producers(left).get_all()
    except MillstreamError as error:
        # They end by themselves, after their timeout; the batch is committed.
        log.warning("transactions of other attempts were not aborted: %s", error)
