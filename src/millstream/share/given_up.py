"""The records that a share group gives up, from then until they are in its dead-letter topic.

They are ARCHIVING: the start offset does not pass them. Each is handed out once, as soon as the
change to this state is decided, and ARCHIVED when it is in the topic, or was given up on the way to
it (KIP-1191). Without a dead-letter topic they are ARCHIVED at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.share.dead_letters import DeadLetterCause, DeadLetters
from millstream.share.in_flight import InFlight, InFlightRange
from millstream.share.record_state import RecordState
from millstream.share.rules import ShareRules


class GivenUp:
    """What was given up of the records that are in flight."""

    __slots__ = ("_in_flight", "_may_be_some")

    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight
        self._may_be_some = False

    def ending(
        self, rules: ShareRules, state: RecordState, cause: DeadLetterCause | None
    ) -> tuple[RecordState, DeadLetterCause | None]:
        """Return ARCHIVING and the cause for what goes to the dead-letter topic of the group: what
        has a cause. Anything else gets ``state``.
        """
        if cause is None or not rules.has_dead_letters:
            return state, None
        self._may_be_some = True
        return RecordState.ARCHIVING, cause

    def take(self) -> list[DeadLetters]:
        """Return what is to go to the dead-letter topic, each record once: what was given up, and
        is decided.
        """
        if not self._may_be_some:
            return []
        self._may_be_some = False
        taken: list[DeadLetters] = []
        for found in self._in_flight.ranges:
            if found.cause is None:
                continue
            if found.previous is not None:
                self._may_be_some = True
                continue
            offsets = found.first_offset, found.last_offset
            taken.append(DeadLetters(*offsets, found.delivery_count, found.cause))
            found.cause = None
        return taken

    def archive(self, runs: Iterable[DeadLetters]) -> list[InFlightRange]:
        """Archive what is in the topic; return the ranges, without those that are not in flight any
        more.
        """
        archived = [
            each
            for letters in runs
            for each in self._in_flight.isolate(letters.first_offset, letters.last_offset)
            if each.state is RecordState.ARCHIVING
        ]
        for each in archived:
            self._in_flight.change(each, RecordState.ARCHIVED)
        return archived


def cause_of_stored(rules: ShareRules, delivery_count: int) -> DeadLetterCause:
    """Return why records were given up that the last leader has left ARCHIVING: nobody knows
    whether it wrote them to the topic, nor is the cause stored.
    """
    is_used_up = delivery_count >= rules.delivery_count_limit
    return DeadLetterCause.DELIVERED_TOO_OFTEN if is_used_up else DeadLetterCause.REJECTED
