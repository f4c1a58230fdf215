"""Records that are deleted while others write and read: log starts move up.

Nothing is deleted that one consumer has not read, so all that was acknowledged must have been seen.
"""

from __future__ import annotations

from millstream.history.checker import PartitionKey
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from millstream.runtime.pauses import pause
from millstream.sim.clients import REQUEST_MS, Client, run_client
from millstream.sim.consumers import Consumer


class Deleter:
    """Deletes what ``reader`` has read of one partition, a part of it at a time."""

    def __init__(
        self, client: Client, partition_key: PartitionKey, reader: Consumer, *, pause_ms: float
    ) -> None:
        self._client = client
        self._partition_key = partition_key
        self._reader = reader
        self._pause_ms = pause_ms
        self.acknowledged = 0

    def start(self) -> None:
        """Delete until the client is stopped."""
        run_client(self._client, self._run())

    async def _run(self) -> None:
        client = self._client
        while not client.stopped:
            await pause(client.clock, client.chance.expovariate(1 / self._pause_ms))
            try:
                await self._delete()
            except KafkaError:
                await client.look_again(self._partition_key)

    async def _delete(self) -> None:
        """Delete once; KafkaError where it is not known to have been done."""
        client, history, (topic, index) = self._client, self._client.history, self._partition_key
        before, read = history.deletions.get(self._partition_key, 0), self._reader.position
        if read <= before:
            return
        leader = await client.leader_of(self._partition_key)
        offset = client.chance.randrange(before, read) + 1
        history.deletions[self._partition_key] = offset
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)],
                )
            ],
            timeout_ms=REQUEST_MS // 2,
        )
        response = await client.ask(leader, request, lane="deletions")
        assert isinstance(response, DeleteRecordsResponse)
        error = ErrorCode.of(response.topics[0].partitions[0].error_code)
        if error is ErrorCode.UNKNOWN_SERVER_ERROR:
            client.problems.append(f"a deletion of {self._partition_key} was answered {error.name}")
        if error is not ErrorCode.NONE:
            raise KafkaError(error)
        self.acknowledged += 1
