"""Records that a share group gives up, on their way to its dead-letter topic (KIP-1191)."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from millstream.model.offsets import Offset


class DeadLetterCause(Enum):
    """Why a record is not delivered again. The text is told in a header of the dead letter, in
    Kafka's words (``ShareGroupDLQManager``).
    """

    REJECTED = "Offset rejected by client."
    DELIVERED_TOO_OFTEN = "Offset delivery count exceeded the threshold."


class DeadLetters(NamedTuple):
    """Consecutive offsets that were given up together."""

    first_offset: Offset
    last_offset: Offset
    delivery_count: int
    cause: DeadLetterCause
