"""What a run came to: as JSON for scripts, and as text for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

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
    if result.anomalies:
        yield f"{len(result.anomalies):,} anomalies"
        if plan.acks != "all" and counts[Kind.LOST]:
            yield f"acks={plan.acks} promises nothing once the leader is gone"
    else:
        yield "no anomaly"
