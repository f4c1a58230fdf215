"""What the command line of a benchmark run decides."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MB = 1_000_000
QUICK_FRACTION = 20


@dataclass(frozen=True)
class Options:
    """`pairs` counted samples per subject and row; a quick run moves a twentieth of the bytes."""

    pairs: int
    quick: bool
    use_kafka: bool
    data_dir: Path
    only: str = ""
    log_gb: float = 10.0
    spark_mb: int = 1_000
    partitions: int = 6
    """Those of the topics that B10 and B11 read."""
    also_on: Path | None = None
    """A further interpreter that has Millstream: its broker takes part in B1 and B6, too."""

    def scaled(self, amount: int) -> int:
        """Return the full amount, or what a quick run makes of it."""
        return max(1, amount // QUICK_FRACTION) if self.quick else amount
