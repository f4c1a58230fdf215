"""Subscriptions by a pattern of Python, which this client matches."""

from __future__ import annotations

from millstream.client.core.consumer.settings import ConsumerSettings
from millstream.client.core.consumer.subscription import Subscription, SubscriptionKind
from millstream.client.core.metadata import MetadataView
from millstream.model.topic import INTERNAL_TOPICS


def match_pattern(
    metadata: MetadataView, settings: ConsumerSettings, subscription: Subscription
) -> None:
    """Update the topics that match the pattern, from the metadata at hand; without one nothing."""
    if subscription.kind is not SubscriptionKind.PATTERN:
        return
    hidden = INTERNAL_TOPICS if settings.exclude_internal_topics else frozenset()
    subscription.match(
        name for name in metadata.topics if metadata.known(name) is not None and name not in hidden
    )
