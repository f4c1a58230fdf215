"""What a request asked for, as JSON without any secret.

Bytes are left out: what is secret in a request (HMACs of tokens, salted passwords, salts) has that
type, and so have records. Texts of settings are shown only of settings that are known and no
passwords. A request names any number of things: of a long one the first are shown, and how many
more there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import cache
from math import isfinite
from typing import Final

from millstream.config.broker import all_broker_keys
from millstream.config.group import GROUP_KEYS
from millstream.config.topic import TopicConfig
from millstream.model.acl import AclOperation, AclResource, PatternType, Permission
from millstream.model.topic import ZERO_TOPIC_ID, TopicId, topic_id_to_text
from millstream.protocol.api import ApiKey
from millstream.protocol.message import Request
from millstream.protocol.schema import Struct
from millstream.security.audit.event import JsonValue

MAX_ITEMS: Final = 500
"""Structs and texts in lists that are shown of a request."""
MAX_TEXT: Final = 512
"""Characters that are shown of a text."""
HIDDEN: Final = "[hidden]"


def _words_of(numbers: type[IntEnum]) -> Mapping[int, str]:
    return {each.value: each.name for each in numbers}


_OF_ACLS: Final = {
    "resource_type": _words_of(AclResource),
    "resource_type_filter": _words_of(AclResource),
    "resource_pattern_type": _words_of(PatternType),
    "pattern_type_filter": _words_of(PatternType),
    "operation": _words_of(AclOperation),
    "permission_type": _words_of(Permission),
}
_OF_SETTINGS: Final[Mapping[str, Mapping[int, str]]] = {
    "resource_type": {
        2: "TOPIC",
        4: "BROKER",
        8: "BROKER_LOGGER",
        16: "CLIENT_METRICS",
        32: "GROUP",
    },
    "config_operation": {0: "SET", 1: "DELETE", 2: "APPEND", 3: "SUBTRACT"},
}
_WORDS: Final[Mapping[int, Mapping[str, Mapping[int, str]]]] = {
    ApiKey.CREATE_ACLS: _OF_ACLS,
    ApiKey.DELETE_ACLS: _OF_ACLS,
    ApiKey.ALTER_CONFIGS: _OF_SETTINGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _OF_SETTINGS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {"mechanism": {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}},
}
"""Numbers of requests that have names, by field."""

_NAMES: Final = ("name", "resource_name", "group_id", "topic", "topic_name")


def shortened(text: str) -> str:
    """Return a text of a client, cut where it is long."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."


def name_of(struct: Struct) -> str | None:
    """Return the name of the resource that a part of a message is about; None for none."""
    for each in _NAMES:
        found = getattr(struct, each, None)
        if isinstance(found, str):
            return found
    return None


def request_data(request: Request, name: str | None) -> JsonValue:
    """Return what a request asked for: of the resource ``name``, where it names that one among
    others, and else of all.
    """
    return _Summary(name, _WORDS.get(request.API_KEY, {})).of(request)


class _Summary:
    def __init__(self, name: str | None, words: Mapping[str, Mapping[int, str]]) -> None:
        self._name = name
        self._words = words
        self._left = MAX_ITEMS

    def of(self, struct: Struct) -> JsonValue:
        """Return a struct's fields under Kafka's names."""
        found: dict[str, JsonValue] = {}
        for field in type(struct).FIELDS:
            value = getattr(struct, field.name)
            if field.kind in {"bytes", "records"} or value is None:
                continue
            key = _camel(field.name)
            if isinstance(value, list):
                items = self._wanted(value)
                shown = [self._item(each) for each in self._some(items)]
                if shown:
                    found[key] = shown
                if len(shown) < len(items):
                    found[f"{key}Omitted"] = len(items) - len(shown)
            elif field.name == "value" and isinstance(value, str) and not _may_be_shown(struct):
                found[key] = HIDDEN
            elif value != ZERO_TOPIC_ID:
                words = self._words.get(field.name)
                found[key] = self._item(value) if words is None else words.get(value, value)
        return found

    def _wanted(self, items: list[object]) -> list[object]:
        """Return the items about the resource, or all where none is."""
        name = self._name
        if name is None:
            return items
        named = [
            each
            for each in items
            if (name_of(each) == name if isinstance(each, Struct) else each == name)
        ]
        return named or items

    def _some(self, items: list[object]) -> Iterable[object]:
        for each in items:
            if self._left <= 0:
                return
            self._left -= 1
            yield each

    def _item(self, item: object) -> JsonValue:
        if isinstance(item, Struct):
            return self.of(item)
        if isinstance(item, bytes):  # what is no id of a topic has another kind of field
            return topic_id_to_text(TopicId(item)) if len(item) == len(ZERO_TOPIC_ID) else HIDDEN
        if isinstance(item, int) or (isinstance(item, float) and isfinite(item)):
            return item
        return shortened(str(item))


def _may_be_shown(struct: Struct) -> bool:
    """Tell whether ``value`` of a part of a request, next to ``name``, is no secret."""
    name = getattr(struct, "name", None)
    return isinstance(name, str) and name in _shown_settings()


@cache
def _shown_settings() -> frozenset[str]:
    """Return the settings whose texts are no secret."""
    keys = [*all_broker_keys().values(), *TopicConfig.keys.values(), *GROUP_KEYS.values()]
    secret = {key.name for key in keys if key.is_sensitive}
    return frozenset(key.name for key in keys) - secret


@cache
def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest))
