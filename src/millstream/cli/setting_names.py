"""Names of settings on a command line, checked before anything is changed.

A broker takes names that it does not know, in case a plug-in does, and unsetting a name that was
never set succeeds: without this check a mistyped name would be reported as done.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from millstream.cli.failures import CommandFailedError
from millstream.client import Admin
from millstream.client.core.admin.configs import Resource, ResourceType

_OF_LISTENER: Final = "listener.name."
"""Settings of one listener or SASL mechanism: brokers do not list them, so they are not checked."""


def refuse_unknown_settings(admin: Admin, resource: Resource, names: Iterable[str]) -> None:
    """Raise CommandFailedError for a name that the resource has not, with the nearest that it has.

    KafkaError when the resource is not there.
    """
    asked = [resource]
    if resource.type is ResourceType.BROKER and not resource.name:
        # The default of all brokers lists what is set only; each broker lists all that it knows.
        brokers = admin.describe_cluster().brokers
        asked += [Resource(ResourceType.BROKER, str(brokers[0].broker_id))]
    listed = admin.describe_configs(asked)
    known = {setting.name for each in asked for setting in listed[each].get()}
    for name in names:
        if name not in known and not name.startswith(_OF_LISTENER):
            near = get_close_matches(name, sorted(known), n=1)
            hint = f"; the nearest is {near[0]!r}" if near else ""
            raise CommandFailedError(f"{resource} has no setting {name!r}{hint}")
