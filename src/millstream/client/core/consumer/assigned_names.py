"""The names of assigned topics: assignments of the consumer protocol (KIP-848) have their ids."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from millstream.client.core.loop import ClientLoop
from millstream.client.core.metadata import MetadataView
from millstream.client.core.waiting import within
from millstream.client.errors import ClientError, ClosedError
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import KafkaError
from millstream.model.topic import TopicId, topic_id_to_text

_log = logging.getLogger("millstream.client.consumer")


class AssignedNames:
    """The names of the ids in a member's assignments; they stay known when metadata drops a topic.
    ``try_again`` is called when those that had no name may be asked for once more.
    """

    def __init__(
        self,
        loop: ClientLoop,
        metadata: MetadataView,
        group_id: str,
        *,
        timeout_ms: float,
        pause_ms: float,
        try_again: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._metadata = metadata
        self._group_id = group_id
        self._timeout_ms = timeout_ms
        self._pause_ms = pause_ms
        self._try_again = try_again
        self._names: dict[TopicId, str] = {}
        self._asks_after_ms = 0.0

    def __contains__(self, topic_id: TopicId) -> bool:
        """Return True for an id whose name is known."""
        return topic_id in self._names

    def __getitem__(self, topic_id: TopicId) -> str:
        """Return a name that is known."""
        return self._names[topic_id]

    @property
    def topics(self) -> Collection[str]:
        """The names that are known."""
        return self._names.values()

    def clear(self) -> None:
        """Forget all of them."""
        self._names.clear()

    def keep(self, topics: Collection[str]) -> None:
        """Forget all others."""
        self._names = {key: name for key, name in self._names.items() if name in topics}

    async def learn(self, topic_ids: Iterable[TopicId]) -> None:
        """Look up the names of topics that are assigned; one that was deleted has none."""
        missing = self._without_name(topic_ids)
        if not missing or self._loop.now_ms() < self._asks_after_ms:
            return
        found: Deferred[dict[TopicId, str]] = spawn(self._metadata.names_of(missing))
        try:
            names = await within(self._loop, found, self._timeout_ms, "names of topics")
        except ClosedError:
            raise
        except (ClientError, KafkaError) as error:
            _log.debug("group %s: names of topics: %s", self._group_id, error)
            names = {}
        self._names |= names
        self._metadata.want(names.values())
        unknown = missing - names.keys()
        if unknown:
            texts = ", ".join(sorted(topic_id_to_text(each) for each in unknown))
            _log.info("group %s: assigned topics have no name yet: %s", self._group_id, texts)
            self._asks_after_ms = self._loop.now_ms() + self._pause_ms
            self._loop.call_at(self._asks_after_ms, self._try_again)

    def _without_name(self, topic_ids: Iterable[TopicId]) -> set[TopicId]:
        missing: set[TopicId] = set()
        for topic_id in topic_ids:
            name = self._metadata.name_of(topic_id)
            if name is not None:
                self._names[topic_id] = name
            elif topic_id not in self._names:
                missing.add(topic_id)
        return missing
