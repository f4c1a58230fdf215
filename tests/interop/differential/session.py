"""What a scenario works with: connections, fresh names, and the list of answers it got."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from tests.interop.differential import codec
from tests.interop.differential.connection import TIMEOUT_S, ConnectionClosedError, RawConnection
from tests.interop.differential.normalise import Normaliser

CLIENT_ID: Final = "differential"
CLOSED: Final = "connection closed"
UNANSWERED: Final = "no answer"
STUCK: Final = "no answer, and none to what follows"
STUCK_S: Final = 4.0
"""How long an answer may take until it counts as one that never comes."""
EVENTUALLY_S: Final = 20.0
"""How long a broker may take until something that it has accepted can be seen."""

Answer = dict[str, Any]


class NoAnswerError(Exception):
    """A scenario asked for an answer where the broker closed the connection."""


class Peer:
    """One connection of a scenario. Opens when first used, and again after the broker closed it."""

    answered_s = TIMEOUT_S
    """How long an answer may take before TimeoutError ends the scenario."""

    def __init__(self, session: Session, label: str, client_id: str | None) -> None:
        self._session = session
        self._label = label
        self._client_id = client_id
        self._connection: RawConnection | None = None
        self._waiting: list[tuple[str, int]] = []

    @property
    def connection(self) -> RawConnection:
        """The open connection."""
        if self._connection is None:
            self._connection = self._session.open()
        return self._connection

    def call(self, api: str, version: int, /, **fields: object) -> Answer:
        """Send a request, wait for its answer, record the answer and return it."""
        self.post(api, version, **fields)
        return self.receive()

    def quiet(self, api: str, version: int, /, **fields: object) -> Answer:
        """Send a request and return its answer; nothing is recorded."""
        self.post(api, version, **fields)
        return self.quiet_receive()

    def post(self, api: str, version: int, /, **fields: object) -> None:
        """Send a request and do not wait."""
        correlation_id = self.connection.next_correlation_id()
        frame = codec.encode_request(api, version, fields, correlation_id, self._client_id)
        self._waiting.append((api, version))
        self._send(frame)

    def post_raw(self, api: str, version: int, payload: bytes) -> None:
        """Send ``payload`` as one frame whose answer, if any, is one of ``api``."""
        self._waiting.append((api, version))
        self._send(payload)

    def post_bytes(self, api: str, version: int, data: bytes) -> None:
        """Send ``data`` without a frame around it; the answer, if any, is one of ``api``."""
        self._waiting.append((api, version))
        self.connection.send_bytes(data)

    def quiet_receive(self) -> Answer:
        """Return the answer to the oldest request that has none; nothing is recorded."""
        api, version = self._waiting[0]
        answer = self._receive()
        if answer is None:
            raise NoAnswerError(f"{api} v{version}")
        return answer

    def _send(self, frame: bytes) -> None:
        # A broker that has closed the connection is noticed when the answer is read.
        with suppress(ConnectionClosedError):
            self.connection.send_frame(frame)

    def receive(self) -> Answer:
        """Wait for the answer to the oldest request that has none, and record it."""
        api, version = self._waiting[0]
        answer = self._receive()
        if answer is None:
            self._session.record(self._step(api, version), CLOSED)
            return {}
        self._session.record(self._step(api, version), answer)
        return answer

    def expect_unanswered(self) -> None:
        """Record whether the last request is answered. Another request behind it shows that."""
        api, version = self._waiting.pop()
        fence = self.connection.next_correlation_id()
        frame = codec.encode_request("ApiVersions", 0, {}, fence, self._client_id)
        try:
            self.connection.send_frame(frame)
            payload = self.connection.receive_frame(within_s=STUCK_S)
            answered = int.from_bytes(payload[:4], "big") != fence
        except ConnectionClosedError:
            self.close()
            self._session.record(self._step(api, version), CLOSED)
        except TimeoutError:
            self.close()
            self._session.record(self._step(api, version), STUCK)
        else:
            outcome = "answered" if answered else UNANSWERED
            self._session.record(self._step(api, version), outcome)

    def _step(self, api: str, version: int) -> str:
        place = "" if self._label == "main" else f" on {self._label}"
        return f"{api} v{version}{place}"

    def _receive(self) -> Answer | None:
        api, version = self._waiting.pop(0)
        try:
            payload = self.connection.receive_frame(within_s=self.answered_s)
        except ConnectionClosedError:
            self.close()
            return None
        return codec.decode_response(api, version, payload)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._waiting.clear()


class Session:
    """One run of one scenario against one broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._suffix = secrets.token_hex(5)
        self._peers: dict[str, Peer] = {}
        self._topic_ids: dict[str, str] = {}
        self._only: Callable[[Answer], Answer] | None = None
        self.normaliser = Normaliser()
        self.steps: list[tuple[str, object]] = []
        self.main = self.peer("main")

    def open(self) -> RawConnection:
        """Connect to the broker."""
        return RawConnection(self._bootstrap)

    def peer(self, label: str, client_id: str | None = CLIENT_ID) -> Peer:
        """Return the connection called ``label``."""
        if label not in self._peers:
            self._peers[label] = Peer(self, label, client_id)
        return self._peers[label]

    def close(self) -> None:
        """Close all connections."""
        for peer in self._peers.values():
            peer.close()

    def record(self, step: str, answer: Answer | str) -> None:
        """Append to what is compared."""
        if isinstance(answer, str):
            self.steps.append((step, answer))
            return
        shown = self._only(answer) if self._only else answer
        self.steps.append((step, self.normaliser.normalise(shown)))

    def call(self, api: str, version: int, /, **fields: object) -> Answer:
        """``Peer.call`` on the main connection."""
        return self.main.call(api, version, **fields)

    def call_for(
        self, only: Callable[[Answer], Answer], api: str, version: int, /, **fields: object
    ) -> Answer:
        """``call``, recording what ``only`` makes of the answer: for lists of the whole broker."""
        self._only = only
        try:
            return self.main.call(api, version, **fields)
        finally:
            self._only = None

    def quiet(self, api: str, version: int, /, **fields: object) -> Answer:
        """``Peer.quiet`` on the main connection."""
        return self.main.quiet(api, version, **fields)

    def until(
        self, done: Callable[[Answer], bool], api: str, version: int, /, **fields: object
    ) -> Answer:
        """Repeat a request quietly until its answer is as wished."""
        deadline = time.monotonic() + EVENTUALLY_S
        while True:
            answer = self.quiet(api, version, **fields)
            if done(answer):
                return answer
            if time.monotonic() > deadline:
                raise TimeoutError(f"{api} v{version} still answers {answer}")
            time.sleep(0.005)

    def name(self, label: str) -> str:
        """Return a name that nobody has used: the same for the same label."""
        name = f"{label}-{self._suffix}"
        self.normaliser.know_name(name, label)
        return name

    def is_own(self, name: object) -> bool:
        """Whether ``name`` came from this session."""
        return isinstance(name, str) and self._suffix in name

    def topic(
        self,
        label: str = "t",
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic, wait until its partitions have leaders, and return its name."""
        name = self.name(label)
        wanted = [{"name": key, "value": value} for key, value in (configs or {}).items()]
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": wanted,
        }
        answer = self.quiet("CreateTopics", 5, topics=[topic], timeout_ms=30_000)
        assert answer["topics"][0]["error_code"] == 0, answer
        self.await_topic(name, partitions)
        return name

    def await_topic(self, name: str, partitions: int = 1) -> None:
        """Wait until the topic has ``partitions`` leaders, and remember its id."""

        def has_leaders(answer: Answer) -> bool:
            topic = answer["topics"][0]
            leaders = [each["leader_id"] for each in topic["partitions"]]
            return topic["error_code"] == 0 and len(leaders) >= partitions and min(leaders) >= 0

        answer = self.until(has_leaders, "Metadata", 12, **self.metadata_of(name))
        topic_id = answer["topics"][0]["topic_id"]
        self._topic_ids[name] = topic_id
        self.normaliser.know_topic_id(topic_id, name.rpartition("-")[0])
        self.until(
            lambda each: all(p["error_code"] == 0 for p in each["topics"][0]["partitions"]),
            "ListOffsets",
            5,
            replica_id=-1,
            topics=[
                {
                    "name": name,
                    "partitions": [
                        {"partition_index": index, "timestamp": -1} for index in range(partitions)
                    ],
                }
            ],
        )

    def await_no_topic(self, name: str) -> None:
        """Wait until the topic is gone from the metadata."""
        self.until(
            lambda answer: answer["topics"][0]["error_code"] == 3,
            "Metadata",
            12,
            **self.metadata_of(name),
        )

    @staticmethod
    def metadata_of(*names: str) -> dict[str, object]:
        """Return the fields of a Metadata request (v4+) that creates nothing."""
        return {
            "topics": [{"name": name} for name in names],
            "allow_auto_topic_creation": False,
        }

    def topic_id(self, name: str) -> str:
        """Return the id of a topic that this session created, as 32 hexadecimal digits."""
        return self._topic_ids[name]

    def topic_ref(self, name: str, *, by_id: bool, field: str = "name") -> dict[str, object]:
        """Return the field that names a topic: its id where the version has ids."""
        if by_id:
            return {"topic_id": self._topic_ids.get(name, "f" * 32)}
        return {field: name}

    def produce(
        self,
        records: bytes | None,
        *,
        topic: str,
        partition: int = 0,
        version: int = 9,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> Answer:
        """Produce ``records`` to one partition and record the answer."""
        return self.call(
            "Produce",
            version,
            **self.produce_fields(
                [(topic, partition, records)],
                version=version,
                acks=acks,
                transactional_id=transactional_id,
            ),
        )

    def produce_fields(
        self,
        parts: Sequence[tuple[str, int, bytes | None]],
        *,
        version: int,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> dict[str, object]:
        """Return the fields of a Produce request with one entry per (topic, partition, records)."""
        return {
            "transactional_id": transactional_id,
            "acks": acks,
            "timeout_ms": 10_000,
            "topic_data": [
                self.topic_ref(topic, by_id=version >= 13)
                | {"partition_data": [{"index": partition, "records": records}]}
                for topic, partition, records in parts
            ],
        }

    def fill(self, topic: str, *batches: bytes, partition: int = 0) -> None:
        """Produce batches one after the other, quietly; each must be accepted."""
        for each in batches:
            fields = self.produce_fields([(topic, partition, each)], version=9)
            answer = self.quiet("Produce", 9, **fields)
            code = answer["responses"][0]["partition_responses"][0]["error_code"]
            assert code == 0, answer
