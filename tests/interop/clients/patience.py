"""What kafka-python's consumers need so that they miss nothing for good (seen with 3.0.12)."""

from __future__ import annotations

from typing import Final

ASK_AGAIN_MS: Final = 1_000
"""``metadata_max_age_ms`` of its consumers. What is subscribed or assigned while a first request,
which names no topic, is on its way is not asked for when that one is answered
(``ClusterMetadata.set_topics``), and by default not for five minutes after: a member that leads its
group then divides no partitions.
"""
JOIN_MS: Final = 3_000
"""How long one ``poll`` of a member of a group waits. A leader that joins again because it got to
know the topic takes itself for joined once it has divided the partitions. If ``poll`` ends before
its own share arrives, no later one looks for the answer (``join_group_async`` asks ``need_rejoin``
first): it reads nothing and sends no heartbeat, and is thrown out with its session.
"""
