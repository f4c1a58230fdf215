"""What stands in the nodes of the metadata store: Kafka's JSON, to and from values.

What is read may come from elsewhere (a shared ZooKeeper, a damaged file), so a payload that is not
of its form is a :class:`PayloadError` and never a wrong decision.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, cast

from millstream.model.broker import BrokerId, BrokerNode
from millstream.model.errors import MillstreamError
from millstream.model.leadership import PartitionState
from millstream.model.topic import TopicId, topic_id_from_text, topic_id_to_text

PROTOCOL_BY_DEFAULT: Final = "PLAINTEXT"


class PayloadError(MillstreamError):
    """A node of the metadata store holds something else than its path promises."""


def _dump(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _load(path: str, data: bytes) -> dict[str, object]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise PayloadError(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise PayloadError(f"{path}: not a JSON object")
    return value


def cluster_id(identifier: str) -> bytes:
    """Return the payload of `/cluster/id`."""
    return _dump({"version": "1", "id": identifier})


def read_cluster_id(path: str, data: bytes) -> str:
    """Return the cluster id."""
    identifier = _load(path, data).get("id")
    if not isinstance(identifier, str):
        raise PayloadError(f"{path}: no cluster id")
    return identifier


def controller(broker_id: BrokerId, now_ms: int) -> bytes:
    """Return the payload of `/controller`."""
    return _dump({"version": 1, "brokerid": broker_id, "timestamp": str(now_ms)})


def read_controller_epoch(path: str, data: bytes) -> int:
    """Return the epoch that `/controller_epoch` holds, a bare number."""
    try:
        return int(data)
    except ValueError as error:
        raise PayloadError(f"{path}: no controller epoch: {error}") from error


def broker(node: BrokerNode, now_ms: int) -> bytes:
    """Return the payload of `/brokers/ids/<id>`."""
    first = node.endpoints[0]
    return _dump(
        {
            "version": 5,
            "host": first.host,
            "port": first.port,
            "endpoints": [f"{each.listener}://{each.host}:{each.port}" for each in node.endpoints],
            "listener_security_protocol_map": {
                each.listener: PROTOCOL_BY_DEFAULT for each in node.endpoints
            },
            "rack": node.rack,
            "jmx_port": -1,
            "timestamp": str(now_ms),
            "features": {},
        }
    )


def topic(topic_id: TopicId, assignment: Sequence[Sequence[BrokerId]]) -> bytes:
    """Return the payload of `/brokers/topics/<topic>`: the replicas of each partition by index."""
    return _dump(
        {
            "version": 3,
            "topic_id": topic_id_to_text(topic_id),
            "partitions": {str(index): list(each) for index, each in enumerate(assignment)},
            "adding_replicas": {},
            "removing_replicas": {},
        }
    )


def read_topic(path: str, data: bytes) -> tuple[TopicId, list[tuple[BrokerId, ...]]]:
    """Return a topic's id and the replicas of each partition by index."""
    value = _load(path, data)
    try:
        topic_id = topic_id_from_text(cast(str, value["topic_id"]))
        by_index = cast("dict[str, list[BrokerId]]", value["partitions"])
        assignment = [tuple(by_index[str(index)]) for index in range(len(by_index))]
        if not assignment:
            raise ValueError("no partitions")  # noqa: TRY301
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PayloadError(f"{path}: no topic: {error!r}") from error
    return topic_id, assignment


def state(partition: PartitionState) -> bytes:
    """Return the payload of a partition's state; its replicas stand in the topic's node."""
    return _dump(
        {
            "controller_epoch": partition.controller_epoch,
            "leader": partition.leader,
            "version": 1,
            "leader_epoch": partition.leader_epoch,
            "isr": list(partition.isr),
        }
    )


def read_state(
    path: str, data: bytes, *, replicas: tuple[BrokerId, ...], version: int
) -> PartitionState:
    """Return a partition's state; ``version`` is that of the node."""
    value = _load(path, data)
    try:
        leader = cast(BrokerId, value["leader"])
        leader_epoch = cast(int, value["leader_epoch"])
        isr = tuple(cast("list[BrokerId]", value["isr"]))
        controller_epoch = cast(int, value["controller_epoch"])
        if not all(isinstance(n, int) for n in (leader, leader_epoch, controller_epoch, *isr)):
            raise TypeError("a number is not a number")  # noqa: TRY301
    except (KeyError, TypeError) as error:
        raise PayloadError(f"{path}: no partition state: {error!r}") from error
    if isr == replicas:
        isr = replicas  # one tuple instead of two, for each of ten thousand partitions
    return PartitionState(replicas, leader, leader_epoch, isr, version, controller_epoch)


def config(texts: Mapping[str, str]) -> bytes:
    """Return the payload of a node under `/config`."""
    return _dump({"version": 1, "config": dict(texts)})


def read_config(path: str, data: bytes) -> dict[str, str]:
    """Return the settings that a node under `/config` holds."""
    texts = _load(path, data).get("config")
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise PayloadError(f"{path}: no settings")
    return texts


def producer_id_block(*, broker_id: BrokerId, first: int, last: int) -> bytes:
    """Return the payload of `/latest_producer_id_block`; both ends belong to the block."""
    return _dump(
        {"version": 1, "broker": broker_id, "block_start": str(first), "block_end": str(last)}
    )


def read_producer_id_block(path: str, data: bytes) -> int:
    """Return the last producer id of the block given out last."""
    try:
        return int(cast(str, _load(path, data)["block_end"]))
    except (KeyError, TypeError, ValueError) as error:
        raise PayloadError(f"{path}: no block of producer ids: {error!r}") from error


def deleted_topic(name: str) -> bytes:
    """Return the payload that remembers a deleted topic."""
    return _dump({"version": 1, "topic": name})
