"""The authorizer of a broker, which follows the rules of access that the broker knows."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from millstream.config.broker import BrokerConfig
from millstream.model.entities import EntitiesView, EntityKind
from millstream.model.entity_keys import read_acl_key, read_acls
from millstream.security.authorizer import Authorizer, parse_super_users

log = logging.getLogger(__name__)

_MAX_NAMED: Final = 5
"""How many of the entities that cannot be read are named in the log."""


def authorizer_of(config: BrokerConfig, entities: EntitiesView) -> Authorizer:
    """Return an authorizer with all rules that are known, which takes over every change."""
    authorizer = Authorizer(
        parse_super_users(config.super_users),
        allow_everyone_if_no_acl_found=config.allow_everyone_if_no_acl_found,
    )

    def take_over(keys: Iterable[str]) -> None:
        present = entities.all(EntityKind.ACL)
        unread: list[str] = []
        for key in keys:
            try:
                _take_over(authorizer, key, present.get(key))
            except ValueError:
                unread.append(key)
        if unread:
            log.error(
                "%d resource patterns have rules of access that cannot be read, and keep those "
                "that they had: %s%s",
                len(unread),
                ", ".join(map(repr, unread[:_MAX_NAMED])),
                ", ..." if len(unread) > _MAX_NAMED else "",
            )

    entities.watch(EntityKind.ACL, take_over)
    take_over(entities.all(EntityKind.ACL))
    return authorizer


def _take_over(authorizer: Authorizer, key: str, value: Mapping[str, str] | None) -> None:
    """Put the rules of one resource pattern in force. ValueError, and nothing changed, for what
    cannot be read.
    """
    resource, pattern, name = read_acl_key(key)
    authorizer.set_rules(resource, pattern, name, () if value is None else read_acls(key, value))
