"""The share groups of one shard of the group coordinator, put together."""

from __future__ import annotations

from typing import cast

from millstream.coordinator.group.groups import Groups
from millstream.coordinator.group.modern.topics import TopicsImage
from millstream.coordinator.group.share.description import describe_share_group
from millstream.coordinator.group.share.heartbeat import ShareHeartbeats
from millstream.coordinator.group.share.settings import ShareGroupSettings
from millstream.coordinator.group.share.share_group import ShareGroup
from millstream.coordinator.group.share.share_offsets import ShareOffsets
from millstream.coordinator.group.timers import GroupDeadlines
from millstream.coordinator.result import CoordinatorRecord, Instant, Result, TopicChange
from millstream.protocol.messages.share_group_describe import DescribedGroup
from millstream.protocol.messages.share_group_records import ShareGroupMetadataKey


class ShareGroups:
    """``members`` serves heartbeats, ``offsets`` administrators."""

    def __init__(
        self,
        settings: ShareGroupSettings,
        groups: Groups,
        topics: TopicsImage,
        deadlines: GroupDeadlines,
    ) -> None:
        self._groups = groups
        self._topics = topics
        self.members = ShareHeartbeats(settings, groups, topics, deadlines)
        self.offsets = ShareOffsets(groups, topics, self.members)

    def describe(self, group_id: str) -> Result[DescribedGroup]:
        """Return a share group's epochs, members and assignments."""
        return Result(response=describe_share_group(self._groups, group_id, self._topics))

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply a record of a share group."""
        group_id = cast("ShareGroupMetadataKey", record.key).group_id
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup):
            if record.value is None:
                return
            group = ShareGroup(group_id)
            self._groups.put(group)
        if isinstance(record.key, ShareGroupMetadataKey) and record.value is None:
            self._groups.remove(group_id)
            self.members.forget(group)
        else:
            group.apply(record)

    def topic_changed(self, change: TopicChange) -> list[CoordinatorRecord]:
        """Let groups look at a topic that has changed; forget one that was deleted."""
        records: list[CoordinatorRecord] = []
        for group in self._groups:
            if isinstance(group, ShareGroup):
                if group.is_subscribed_to(change.name):
                    group.needs_refresh = True
                if change.deleted:
                    records += self.members.topic_deleted(group, change.topic_id)
        return records

    def on_loaded(self, now: Instant) -> None:
        """Give every member a new session."""
        for group in self._groups:
            if isinstance(group, ShareGroup):
                self.members.start_sessions(group, now)

    def on_unloaded(self) -> None:
        """End every session: another broker watches over them."""
        for group in self._groups:
            if isinstance(group, ShareGroup):
                self.members.forget(group)
