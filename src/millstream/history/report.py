"""What a run came to: as JSON for scripts, and as text for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from millstream.history.checker import Kind
from millstream.history.run import Result

_EXAMPLES: Final = 10
_ERRORS: Final = 10
_TOLD: Final = {
    Kind.LOST: "acknowledged records lost",
    Kind.DUPLICATE: "records of idempotent producers written twice",
    Kind.REORDERED: "records out of their producer's order",
    Kind.GONE: "records read and then gone",
    Kind.WRONG_VALUE: "offsets with two values, or values nobody sent",
    Kind.BACKWARD_POLL: "readers that went backwards",
    Kind.SKIPPED: "readers that left records out",
    Kind.GROUP_OFFSET_BACK: "committed offsets that moved back",
    Kind.GROUP_OFFSET_AHEAD: "committed offsets ahead of what was committed",
    Kind.END_BACK: "ends of partitions that moved back",
    Kind.ABORTED_READ: "aborted or refused records read",
    Kind.TORN: "transactions of which only a part is there",
}


def as_json(result: Result) -> dict[str, object]:
    """Return the whole report."""
    plan, counts = result.plan, result.counts
    return {
        "ok": not result.anomalies,
        "topic": result.topic,
        "seconds": result.seconds,
        "producers": plan.producers,
        "readers": plan.readers,
        "acks": plan.acks,
        "idempotent": plan.is_idempotent or plan.is_transactional,
        "transactional": plan.is_transactional,
        "sent": result.sent,
        "acknowledged": result.acknowledged,
        "refused_or_aborted": result.refused,
        "unknown": result.unknown,
        "read": result.read,
        "duplicates": result.duplicates,
        "transactions_committed": result.committed,
        "transactions_aborted": result.aborted,
        "longest_gap_seconds": result.longest_gap_s,
        "faults": [
            {
                "command": each.command,
                "began_seconds": each.began_s,
                "ended_seconds": each.ended_s,
                "exit_code": each.exit_code,
                "output": each.output,
            }
            for each in result.faults
        ],
        "anomalies": {each.value: counts[each] for each in Kind},
        "examples": {
            kind.value: [each.text for each in result.anomalies if each.kind is kind][:_EXAMPLES]
            for kind in Kind
            if counts[kind]
        },
        "errors": dict(list(result.errors.items())[:_ERRORS]),
    }


Row: TypeAlias = tuple[str | int | float | bool | None, ...]


def as_rows(result: Result) -> Iterator[Row]:
    """Yield rows for a script, whose first cell says what a row is about: figures with their names
    in JSON, faults (began, ended, exit code, command), kinds of anomalies with their number, and
    examples of them.
    """
    plan, counts = result.plan, result.counts
    yield "topic", result.topic
    yield "seconds", result.seconds
    yield "sent", result.sent
    yield "acknowledged", result.acknowledged
    yield "refused_or_aborted", result.refused
    yield "unknown", result.unknown
    yield "read", result.read
    yield "duplicates", result.duplicates
    if plan.is_transactional:
        yield "transactions_committed", result.committed
        yield "transactions_aborted", result.aborted
    yield "longest_gap_seconds", result.longest_gap_s
    for each in result.faults:
        yield "fault", each.began_s, each.ended_s, each.exit_code, each.command
    for kind in Kind:
        if counts[kind]:
            yield "anomaly", kind.value, counts[kind]
            found = [one.text for one in result.anomalies if one.kind is kind]
            yield from (("example", kind.value, text) for text in found[:_EXAMPLES])


def verdict(result: Result) -> Iterator[str]:
    """Yield the last lines of a summary."""
    if not result.anomalies:
        yield "no anomaly"
        return
    yield f"{len(result.anomalies):,} anomalies"
    if result.plan.acks != "all" and result.counts[Kind.LOST]:
        yield f"acks={result.plan.acks} promises nothing once the leader is gone"


def as_text(result: Result) -> Iterator[str]:
    """Yield the lines of a summary."""
    plan, counts = result.plan, result.counts
    kind = "transactional" if plan.is_transactional else f"acks={plan.acks}"
    once = ", idempotent" if plan.is_idempotent and not plan.is_transactional else ""
    yield (
        f"{result.topic}: {plan.producers} producers ({kind}{once}), {plan.readers} readers, "
        f"{result.seconds:.1f} s under load"
    )
    yield (
        f"sent {result.sent:,}  acknowledged {result.acknowledged:,}  "
        f"refused or aborted {result.refused:,}  unknown {result.unknown:,}  "
        f"read {result.read:,}  twice {result.duplicates:,}"
    )
    if plan.is_transactional:
        yield f"transactions: {result.committed:,} committed, {result.aborted:,} aborted"
    yield f"longest time without an acknowledgement of some partition: {result.longest_gap_s:.2f} s"
    for each in result.faults:
        code = "did not end" if each.exit_code is None else f"exit code {each.exit_code}"
        yield f"fault at {each.began_s:.1f} s to {each.ended_s:.1f} s, {code}: {each.command}"
    for kind_, told in _TOLD.items():
        if counts[kind_]:
            yield f"{counts[kind_]:,} {told}"
            for text in [one.text for one in result.anomalies if one.kind is kind_][:3]:
                yield f"    {text}"
    yield from verdict(result)
