"""The file ``partition.metadata``: which topic, by id, a partition directory belongs to.

::

    version: 0
    topic_id: 22 characters of base64url

Kafka: ``PartitionMetadataFile``.
"""

from __future__ import annotations

from millstream.model.topic import ZERO_TOPIC_ID, TopicId, topic_id_from_text, topic_id_to_text


def format_partition_metadata(topic_id: TopicId) -> str:
    """Return the file's text."""
    return f"version: 0\ntopic_id: {topic_id_to_text(topic_id)}"


def parse_partition_metadata(text: str) -> TopicId | None:
    """Return the topic id; None when the text has none that can be used."""
    fields = dict(line.partition(": ")[::2] for line in text.splitlines())
    if fields.get("version") not in ("0", "1"):
        return None
    try:
        topic_id = topic_id_from_text(fields.get("topic_id", ""))
    except ValueError:
        return None
    return None if topic_id == ZERO_TOPIC_ID else topic_id
