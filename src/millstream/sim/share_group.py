"""A share group in a simulation as an administrator sees it: set up before it begins, and asked how
far it has got.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from millstream.model.broker import BrokerId
from millstream.model.errors import KafkaError
from millstream.model.features import SHARE_VERSION
from millstream.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
)
from millstream.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millstream.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from millstream.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from millstream.runtime.pauses import pause
from millstream.runtime.share.share_settings import WITH_DEAD_LETTERS
from millstream.sim.clients import Client, run_client
from millstream.sim.dead_letters import GROUP_SETTINGS as DEAD_LETTER_SETTINGS
from millstream.sim.share_consumers import GROUP, ShareMember, check_answer

_GROUP_RESOURCE: Final = 32


class ShareGroupSetup:
    """Has a share group begin where its topic begins (``share.auto.offset.reset``), and gives it a
    dead-letter topic.
    """

    def __init__(
        self, client: Client, members: Sequence[ShareMember], *, has_dead_letters: bool = False
    ) -> None:
        self._client = client
        self._members = members
        self._has_dead_letters = has_dead_letters

    def start(self) -> None:
        """Put the settings in force, then start the members."""
        run_client(self._client, self._run())

    async def _run(self) -> None:
        settings = {"share.auto.offset.reset": "earliest"}
        if self._has_dead_letters:
            settings |= DEAD_LETTER_SETTINGS
            level = FeatureUpdateKey(feature=SHARE_VERSION, max_version_level=WITH_DEAD_LETTERS)
            await self._until_done(UpdateFeaturesRequest(feature_updates=[level]))
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=_GROUP_RESOURCE,
                    resource_name=GROUP,
                    configs=[
                        AlterableConfig(name=name, config_operation=0, value=text)
                        for name, text in settings.items()
                    ],
                )
            ],
            validate_only=False,
        )
        await self._until_done(request)
        for member in self._members:
            member.start()

    async def _until_done(
        self, request: IncrementalAlterConfigsRequest | UpdateFeaturesRequest
    ) -> None:
        client = self._client
        while True:
            try:
                response = await client.ask(client.any_broker(), request, lane=GROUP)
                if isinstance(response, IncrementalAlterConfigsResponse):
                    check_answer(response.responses[0].error_code)
                else:
                    assert isinstance(response, UpdateFeaturesResponse)
                    check_answer(response.error_code)
            except KafkaError:
                await pause(client.clock, 100)
            else:
                return


class ShareOffsets:
    """Asks how far a share group has got, over and over: the start offset that is stored may lie
    before records that are settled, so the lag counts.
    """

    def __init__(self, client: Client, topic: str, partition_count: int) -> None:
        self._client = client
        self._topic = topic
        self._partition_count = partition_count
        self.lags: dict[int, int] = {}

    def start(self) -> None:
        """Ask until the client is stopped."""
        run_client(self._client, self._run())

    async def _run(self) -> None:
        client = self._client
        request = DescribeShareGroupOffsetsRequest(
            groups=[
                DescribeShareGroupOffsetsRequestGroup(
                    group_id=GROUP,
                    topics=[
                        DescribeShareGroupOffsetsRequestTopic(
                            topic_name=self._topic, partitions=list(range(self._partition_count))
                        )
                    ],
                )
            ]
        )
        while not client.stopped:
            await pause(client.clock, 200)
            try:
                question = FindCoordinatorRequest(coordinator_keys=[GROUP])
                found = await client.ask(client.any_broker(), question, lane=GROUP)
                assert isinstance(found, FindCoordinatorResponse)
                check_answer(found.coordinators[0].error_code)
                coordinator = BrokerId(found.coordinators[0].node_id)
                response = await client.ask(coordinator, request, 1, lane=GROUP)
            except KafkaError:
                continue
            assert isinstance(response, DescribeShareGroupOffsetsResponse)
            for topic in response.groups[0].topics:
                for partition in topic.partitions:
                    if not partition.error_code:
                        self.lags[partition.partition_index] = partition.lag
