"""Kafka's answers as data: one JSON file per API under ``answers/``, one line per answer.

Other scenarios than those of ``scenarios/`` keep theirs in another directory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

ANSWERS: Final = Path(__file__).parent / "answers"
Steps = Sequence[tuple[str, object]]


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def save(api: str, answers: Mapping[str, Steps], directory: Path = ANSWERS) -> None:
    """Write the answers of all scenarios of ``api``."""
    load.cache_clear()
    directory.mkdir(exist_ok=True)
    blocks = []
    for name, steps in answers.items():
        lines = ",\n".join(f"  {_line([step, answer])}" for step, answer in steps)
        blocks.append(f"{_line(name)}: [\n{lines}\n]" if steps else f"{_line(name)}: []")
    (directory / f"{api}.json").write_text("{\n" + ",\n".join(blocks) + "\n}\n")


@cache
def load(api: str, directory: Path = ANSWERS) -> dict[str, list[tuple[str, object]]]:
    """Read what Kafka answered; empty when nothing is recorded."""
    path = directory / f"{api}.json"
    if not path.exists():
        return {}
    data = json.loads(path.read_text())
    return {name: [(step, answer) for step, answer in steps] for name, steps in data.items()}


def save_settings(version: str, settings: Mapping[str, str], directory: Path = ANSWERS) -> None:
    """Keep which Kafka answered and how it was set up."""
    directory.mkdir(exist_ok=True)
    kept = {"kafka": version, "settings": dict(settings)}
    (directory / "settings.json").write_text(json.dumps(kept, indent=1) + "\n")


def settings(directory: Path = ANSWERS) -> dict[str, str]:
    """Return the settings that Kafka had when its answers were recorded."""
    kept = json.loads((directory / "settings.json").read_text())
    return {str(name): str(value) for name, value in kept["settings"].items()}


def recorded_apis(directory: Path = ANSWERS) -> Iterable[str]:
    """Return the APIs that have a file."""
    return sorted(path.stem for path in directory.glob("*.json") if path.stem[0].isupper())
