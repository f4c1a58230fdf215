"""The key of a share partition: what FindCoordinator carries."""

from __future__ import annotations

import pytest

from millstream.model.topic import TopicId, topic_id_from_text
from millstream.share.state import SharePartitionKey, parse_coordinator_key

TOPIC_ID = topic_id_from_text("AAECAwQFBgcICQoLDA0ODw")


def test_a_key_has_kafkas_form() -> None:
    key = SharePartitionKey("group", TOPIC_ID, 7)
    assert key.coordinator_key == "group:AAECAwQFBgcICQoLDA0ODw:7"


@pytest.mark.parametrize("group_id", ["g", "a:b", ":", "x:AAECAwQFBgcICQoLDA0ODw:3"])
def test_a_key_is_read_from_the_right(group_id: str) -> None:
    key = SharePartitionKey(group_id, TopicId(bytes(range(1, 17))), 12)
    assert parse_coordinator_key(key.coordinator_key) == key


@pytest.mark.parametrize(
    "text",
    ["", "g", "g:1", "g:AAECAwQFBgcICQoLDA0ODw:x", " :AAECAwQFBgcICQoLDA0ODw:1", "g:short:1"],
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not the key"):
        parse_coordinator_key(text)
