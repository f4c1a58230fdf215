"""How soon kafka-python is to ask for metadata again."""

from __future__ import annotations

from typing import Final

ASK_AGAIN_MS: Final = 1_000
"""``metadata_max_age_ms`` of its consumers. What is subscribed or assigned while a first request,
which names no topic, is on its way is not asked for when that one is answered
(``ClusterMetadata.set_topics``), and by default not for five minutes after: a member that leads its
group then divides no partitions.
"""
