"""The quota of changes that the controller makes for a client: partitions made or deleted.

Kafka charges a change once it is known to be possible; here what is charged is what a request names
and the cluster's metadata do not refuse already, before the controller is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from millstream.handlers.request import RequestContext
from millstream.model.errors import KafkaError
from millstream.runtime.services import Services

if TYPE_CHECKING:  # a broker without quotas loads nothing of them
    from millstream.runtime.client_usage import Mutations

T = TypeVar("T")


def mutations_of(
    services: Services, context: RequestContext, *, strict_since: int
) -> Mutations | None:
    """Return what counts the changes of a request; None where nothing limits them."""
    if services.quotas is None:
        return None
    user, is_strict = context.connection.principal.name, context.version >= strict_since
    return services.quotas.mutations(user, context.client_id, is_strict=is_strict)


def charge(
    mutations: Mutations | None,
    items: Sequence[T],
    count_of: Callable[[T], int],
    refuse: Callable[[T, KafkaError], None],
) -> list[T]:
    """Charge items in order; return those that may be made, and ``refuse`` the others."""
    if mutations is None:
        return list(items)
    admitted = []
    for item in items:
        try:
            mutations.charge(count_of(item))
        except KafkaError as error:
            refuse(item, error)
        else:
            admitted.append(item)
    return admitted


def throttle_ms(mutations: Mutations | None) -> int:
    """Return how long the client has to wait."""
    return 0 if mutations is None else mutations.throttle_ms
