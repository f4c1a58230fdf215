"""Which handler serves which API, and in which versions. Read this first.

The APIs listed here are implemented, and no others are advertised (ApiVersions answers from this
table). A
handler module is loaded when its first request comes, so that a broker starts at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, cast

from millstream.handlers.request import Answer, Handle, RequestContext
from millstream.model.errors import KafkaError
from millstream.protocol.api import APIS, FIRST_INTERNAL_KEY, ApiKey
from millstream.runtime.services import Services

if TYPE_CHECKING:  # a broker without an authorizer loads nothing of it
    from millstream.handlers.access_rules import Rule


@cache
def _module(name: str) -> ModuleType:
    return import_module(f"millstream.handlers.{name}")


@dataclass(frozen=True, slots=True)
class Route:
    """One API: the module under ``millstream.handlers``, and the versions advertised to clients.

    ``advertised_from`` is below the first served version for Produce alone (see its handler). An
    API with ``is_advertised`` false is answered, and ApiVersions leaves it out.
    """

    key: ApiKey
    module_name: str
    advertised_from: int
    first_version: int
    last_version: int
    is_advertised: bool = True

    @property
    def rule(self) -> Rule:
        """Where it is asked what the client may do."""
        from millstream.handlers.access_rules import RULES

        return RULES[self.key]

    def module(self) -> ModuleType:
        """Load the handler module."""
        return _module(self.module_name)

    def handle(self) -> Handle:
        """Return the handler, for a request that needs no authorization as a whole: of this broker
        itself, or of one without an authorizer.
        """
        return cast("Handle", self.module().handle)

    def handle_of(self, services: Services) -> Handle:
        """Return the handler for what clients and other brokers ask."""
        if services.authorizer is None:
            return self.handle()
        from millstream.handlers.access_rules import authorized

        return authorized(self.rule, self.module())

    def failed(self) -> Callable[[RequestContext, Any, KafkaError], Answer]:
        """Return what refuses a request as a whole."""
        return cast("Callable[[RequestContext, Any, KafkaError], Answer]", self.module().failed)


_SERVED: Final = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_RECORDS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.DELETE_GROUPS,
    ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.OFFSET_DELETE,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.UPDATE_FEATURES,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
)

_ADVERTISED_FROM: Final = {ApiKey.PRODUCE: 0}

_NOT_ADVERTISED: Final = frozenset(
    {
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
    }
)
"""Advertised by a broker that shows metrics of clients (`metrics.port`), as by Apache Kafka with a
receiver of telemetry: `api_versions` adds them."""

PIPELINED: Final = frozenset({int(ApiKey.PRODUCE)})
"""APIs whose requests are handled while earlier ones of them still wait for their commit."""

QUESTIONS: Final = frozenset({int(ApiKey.FETCH)})
"""APIs that change nothing and may wait long: nothing is done for them once the client has gone."""

FORWARDED: Final = frozenset(
    {
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
    }
)
"""APIs whose requests a broker hands on to the controller (``inter_broker.forward``)."""

ROUTES: Final[dict[int, Route]] = {
    int(key): Route(
        key,
        key.name.lower(),
        _ADVERTISED_FROM.get(key, APIS[key].first_version),
        APIS[key].first_version,
        APIS[key].last_version,
        is_advertised=key not in _NOT_ADVERTISED,
    )
    for key in _SERVED
}

INTER_BROKER_ROUTES: Final[dict[int, Route]] = {
    int(key): Route(
        key,
        key.name.lower(),
        APIS[key].first_version,
        APIS[key].first_version,
        APIS[key].last_version,
    )
    for key in ApiKey
    if key >= FIRST_INTERNAL_KEY
}
"""APIs between brokers, on the inter-broker listener alone; they are never advertised."""


def route_of(key: int) -> Route | None:
    """Return the route of an API, between brokers or for clients; None where it is not served."""
    return ROUTES.get(key) or INTER_BROKER_ROUTES.get(key)
