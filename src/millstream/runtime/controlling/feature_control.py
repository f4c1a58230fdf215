"""The controller's decisions about finalized features, each one event."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from millstream.controller.feature_changes import FeatureUpdate, change, plan_features
from millstream.model.deferred import Deferred
from millstream.model.features import FinalizedFeatures
from millstream.runtime.controlling.controller_events import ControllerEvents

log = logging.getLogger(__name__)


class FeatureControl:
    """Finalizes levels of features for the whole cluster."""

    def __init__(self, events: ControllerEvents) -> None:
        self._events = events
        self._state = events.state

    def update(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
    ) -> Deferred[FinalizedFeatures]:
        """Finalize levels, all or none; return what is in force then.

        Fails with INVALID_UPDATE_VERSION as ``plan_features`` says, and NOT_CONTROLLER. With
        ``validate_only`` nothing changes.
        """
        return self._events.submit(lambda: self._update(updates, validate_only=validate_only))

    async def _update(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool
    ) -> FinalizedFeatures:
        context = self._state.context
        after = plan_features(context, updates)
        if validate_only or after.levels == context.features.levels:
            return context.features
        await self._events.write([change(context, after)])
        context.features = after
        context.features_version += 1
        log.info("finalized features of epoch %d: %s", after.epoch, dict(after.levels))
        self._events.publish_features()
        return after
