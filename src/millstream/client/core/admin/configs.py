"""Settings of topics, brokers and other resources: describe, change, list resources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from millstream.client.core.admin.outcome import Outcome, Outcomes, done, refusal
from millstream.client.core.admin.routing import Routing
from millstream.client.errors import BrokerError
from millstream.model.errors import ErrorCode
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.alter_configs import (
    AlterableConfig as PlainConfig,
)
from millstream.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
)
from millstream.protocol.messages.alter_configs import (
    AlterConfigsResource as PlainResource,
)
from millstream.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from millstream.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from millstream.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

R = TypeVar("R", bound=Response)


class ResourceType(IntEnum):
    """The type of a resource with settings (Kafka: ``ConfigResource.Type``)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@dataclass(frozen=True, slots=True)
class Resource:
    """A topic by name, a broker by id; the broker named "" is the default of all brokers."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        if self.type is ResourceType.BROKER:
            return f"broker {self.name}" if self.name else "the default of all brokers"
        return f"{self.type.name.lower().replace('_', ' ')} {self.name!r}"


class Source(IntEnum):
    """The source of a value (Kafka: ``ConfigSource``)."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8

    @property
    def words(self) -> str:
        """The name of the source for display."""
        return _WORDS.get(self, self.name.lower().replace("_", " "))


_WORDS = {
    Source.DYNAMIC_BROKER: "broker",
    Source.DYNAMIC_DEFAULT_BROKER: "broker default",
    Source.STATIC_BROKER: "server.properties",
}


@dataclass(frozen=True, slots=True)
class Synonym:
    """One synonym of a setting; the effective one comes first."""

    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting of a broker's response; ``value`` is None for null and for secrets."""

    name: str
    value: str | None
    source: Source
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[Synonym, ...] = ()
    documentation: str | None = None


class Operation(IntEnum):
    """The operation on a setting (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one setting; APPEND and SUBTRACT are for lists."""

    name: str
    value: str | None = None
    operation: Operation = Operation.SET


class Configs(Routing):
    """Operations on settings."""

    async def describe_configs(
        self,
        resources: Mapping[Resource, Sequence[str] | None] | Iterable[Resource],
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> Outcomes[Resource, list[Setting]]:
        """Return settings in alphabetical order; a mapping says which ones, None is all."""
        wanted = resources if isinstance(resources, Mapping) else dict.fromkeys(resources)

        async def ask(pending: list[Resource]) -> dict[Resource, Outcome[list[Setting]]]:
            return await self.apart(_by_broker(pending), ask_broker)

        async def ask_broker(
            broker_id: int | None, some: list[Resource]
        ) -> dict[Resource, Outcome[list[Setting]]]:
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=each.type,
                        resource_name=each.name,
                        configuration_keys=_names(wanted[each]),
                    )
                    for each in some
                ],
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
            )
            response = await self._ask(broker_id, request, DescribeConfigsResponse)
            found: dict[Resource, Outcome[list[Setting]]] = {}
            for result in response.results:
                resource = Resource(ResourceType(result.resource_type), result.resource_name)
                found[resource] = _described(result, resource)
            return found

        return await self.each(wanted, ask)

    async def incremental_alter_configs(
        self, changes: Mapping[Resource, Iterable[Change]], *, validate_only: bool = False
    ) -> Outcomes[Resource, None]:
        """Change settings of resources and leave the others as they are; all or none of each."""

        def request(some: list[Resource]) -> IncrementalAlterConfigsRequest:
            return IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=each.type,
                        resource_name=each.name,
                        configs=[
                            AlterableConfig(
                                name=change.name,
                                config_operation=change.operation,
                                value=change.value,
                            )
                            for change in changes[each]
                        ],
                    )
                    for each in some
                ],
                validate_only=validate_only,
            )

        return await self._alter(changes, request, IncrementalAlterConfigsResponse)

    async def alter_configs(
        self, configs: Mapping[Resource, Mapping[str, str | None]], *, validate_only: bool = False
    ) -> Outcomes[Resource, None]:
        """Replace all settings of resources (AlterConfigs): unnamed settings get their default."""

        def request(some: list[Resource]) -> AlterConfigsRequest:
            return AlterConfigsRequest(
                resources=[
                    PlainResource(
                        resource_type=each.type,
                        resource_name=each.name,
                        configs=[
                            PlainConfig(name=name, value=value)
                            for name, value in configs[each].items()
                        ],
                    )
                    for each in some
                ],
                validate_only=validate_only,
            )

        return await self._alter(configs, request, AlterConfigsResponse)

    async def _alter(
        self,
        resources: Iterable[Resource],
        request_for: Callable[[list[Resource]], Request],
        answer: type[IncrementalAlterConfigsResponse] | type[AlterConfigsResponse],
    ) -> Outcomes[Resource, None]:
        """Send the changes to the brokers responsible for the resources."""

        async def ask(pending: list[Resource]) -> dict[Resource, Outcome[None]]:
            return await self.apart(_by_broker(pending), ask_broker)

        async def ask_broker(
            broker_id: int | None, some: list[Resource]
        ) -> dict[Resource, Outcome[None]]:
            response = await self._ask(broker_id, request_for(some), answer)
            found: dict[Resource, Outcome[None]] = {}
            for row in response.responses:
                resource = Resource(ResourceType(row.resource_type), row.resource_name)
                found[resource] = done(row.error_code, row.error_message, str(resource))
            return found

        return await self.each(resources, ask)

    async def list_config_resources(self, types: Iterable[ResourceType] = ()) -> list[Resource]:
        """Return the resources with their own settings, of some types or of all (KIP-1142)."""
        request = ListConfigResourcesRequest(resource_types=[int(each) for each in types])
        response = await self.ask_any(request, ListConfigResourcesResponse)
        if response.error_code:
            raise BrokerError(ErrorCode.of(response.error_code), "resources with settings")
        return [
            Resource(ResourceType(each.resource_type), each.resource_name)
            for each in response.config_resources
        ]

    async def _ask(self, broker_id: int | None, request: Request, answer: type[R]) -> R:
        if broker_id is not None:
            return await self.ask_broker(broker_id, request, answer)
        response = await self.network.send_any(request)
        assert isinstance(response, answer)
        return response


def _by_broker(resources: Iterable[Resource]) -> dict[int | None, list[Resource]]:
    """Group resources by the responsible broker; None is any."""
    grouped: dict[int | None, list[Resource]] = {}
    for resource in resources:
        own = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
        broker_id = int(resource.name) if own and resource.name else None
        grouped.setdefault(broker_id, []).append(resource)
    return grouped


def _names(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else list(names)


def _described(result: DescribeConfigsResult, resource: Resource) -> Outcome[list[Setting]]:
    error = refusal(result.error_code, result.error_message, str(resource))
    if error is not None:
        return Outcome(None, error)
    settings = [read_setting(each) for each in result.configs]
    return Outcome(sorted(settings, key=lambda each: each.name))


def read_setting(row: DescribeConfigsResourceResult) -> Setting:
    """Return a setting from a response."""
    return Setting(
        name=row.name,
        value=row.value,
        source=_source(row.config_source),
        is_read_only=row.read_only,
        is_sensitive=row.is_sensitive,
        synonyms=tuple(
            Synonym(each.name, each.value, _source(each.source)) for each in row.synonyms
        ),
        documentation=row.documentation or None,
    )


def _source(number: int) -> Source:
    return Source(number) if number in Source._value2member_map_ else Source.UNKNOWN
