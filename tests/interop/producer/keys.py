"""Ten thousand random keys, the same in every run."""

from __future__ import annotations

import random

PARTITIONS = 37


def random_keys(count: int = 10_000) -> list[bytes]:
    chance = random.Random(12)
    keys = [
        bytes(chance.randrange(256) for _ in range(chance.randrange(1, 40))) for _ in range(count)
    ]
    return list(dict.fromkeys(keys))
