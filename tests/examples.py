"""How many random examples a property test draws.

`make check` draws a tenth of them, `make test` a half, and `make test-all` all.
"""

from __future__ import annotations

SHARE = 1
"""One of so many examples is drawn; `pytest --one-example-of` sets it before the tests are read."""


def examples(count: int) -> int:
    """Return how many examples to draw where a whole run draws `count`."""
    return max(count // SHARE, 5)
