"""The results file: one run of the benchmarks with everything needed to judge it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from bench.tables import JsonValue

RESULTS = Path(__file__).parent / "results"


def results_path(*, quick: bool, directory: Path = RESULTS) -> Path:
    """Return `<date>.json`, with a number when that day has results already.

    A quick run has one file per day, which the next quick run replaces and git ignores.
    """
    date = datetime.now(UTC).date().isoformat()
    if quick:
        return directory / f"{date}-quick.json"
    path, number = directory / f"{date}.json", 1
    while path.exists():
        number += 1
        path = directory / f"{date}-{number}.json"
    return path


def write(path: Path, data: JsonValue) -> None:
    """Write the file whole: a run that is stopped keeps the benchmarks it finished."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new.tmp")
    new.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    new.replace(path)
