"""Members of consumer groups (KIP-848) for scenarios."""

from __future__ import annotations

import time
from typing import Any

from tests.interop.differential.session import EVENTUALLY_S, Answer, Session

VERSION = 1
QUIET_BEATS = 3
"""So many heartbeats in a row without an assignment: there is nothing more to come."""


class ConsumerMember:
    """One member of a consumer group, on a connection and with a client id of its own."""

    def __init__(
        self, s: Session, group: str, label: str = "a", *, instance: str | None = None
    ) -> None:
        self.s = s
        self.group = group
        self.instance = instance
        self.peer = s.peer(label, client_id=f"client-{label}")
        self.member_id = s.name(f"member-{label}")
        self.epoch = 0
        self.owned: list[dict[str, Any]] = []

    def fields(self, **more: Any) -> dict[str, Any]:
        """Return the fields of a heartbeat that changes nothing."""
        return {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
            "rack_id": None,
            "rebalance_timeout_ms": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": None,
        } | more

    def join_fields(self, *topics: str, **more: Any) -> dict[str, Any]:
        """Return the fields of a first heartbeat."""
        return (
            self.fields(
                member_epoch=0,
                rebalance_timeout_ms=30_000,
                subscribed_topic_names=list(topics),
                topic_partitions=[],
            )
            | more
        )

    def await_coordinator(self) -> None:
        """Wait until the group's coordinator answers."""
        self.s.until(
            lambda answer: answer["error_code"] == 0,
            "OffsetFetch",
            5,
            group_id=self.group,
            topics=None,
        )

    def join(self, version: int, *topics: str, **more: Any) -> Answer:
        """Join and record the answer."""
        self.await_coordinator()
        fields = self.join_fields(*topics, **more)
        return self._take(self.peer.call("ConsumerGroupHeartbeat", version, **fields))

    def quiet_join(self, version: int, *topics: str, **more: Any) -> Answer:
        """Join without recording."""
        self.await_coordinator()
        fields = self.join_fields(*topics, **more)
        return self._take(self.peer.quiet("ConsumerGroupHeartbeat", version, **fields))

    def beat(self, version: int, **more: Any) -> Answer:
        """Send a heartbeat and record the answer."""
        return self._take(self.peer.call("ConsumerGroupHeartbeat", version, **self.fields(**more)))

    def settle(self, version: int) -> None:
        """Send heartbeats that report what was assigned, quietly, until nothing more comes."""
        deadline = time.monotonic() + EVENTUALLY_S
        quiet = 0
        while quiet < QUIET_BEATS:
            assert time.monotonic() < deadline, "the member does not settle"
            epoch = self.epoch
            answer = self._take(
                self.peer.quiet(
                    "ConsumerGroupHeartbeat", version, **self.fields(topic_partitions=self.owned)
                )
            )
            assert answer["error_code"] == 0, answer
            is_quiet = self.epoch == epoch and answer["assignment"] is None
            quiet = quiet + 1 if is_quiet else 0
            time.sleep(0.05)

    def _take(self, answer: Answer) -> Answer:
        if answer.get("error_code") == 0:
            self.epoch = max(0, answer["member_epoch"])
            if answer["assignment"] is not None:
                self.owned = answer["assignment"]["topic_partitions"]
        return answer

    def commit(self, topic: str, **more: Any) -> Answer:
        """Commit an offset and record the answer."""
        part = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "note"}
        fields = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.epoch,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "topics": [{"name": topic, "partitions": [part]}],
        }
        return self.peer.call("OffsetCommit", 9, **(fields | more))
