"""What must hold for every class of the message tables."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.property.random_messages import all_messages

from millstream.model.errors import ProtocolError
from millstream.protocol.api import APIS, ApiKey, request_class, response_class
from millstream.protocol.schema import NO_UUID, Field, Struct


def structs(cls: type[Struct]) -> Iterator[type[Struct]]:
    yield cls
    for field in cls.FIELDS:
        if isinstance(field.element, type):
            yield from structs(field.element)


def all_fields() -> list[tuple[str, Field]]:
    classes = {struct for message in all_messages() for struct in structs(message)}
    return [(f"{cls.__module__}.{cls.__name__}", field) for cls in classes for field in cls.FIELDS]


def test_every_key_has_a_row_and_classes_that_agree_with_it() -> None:
    assert set(APIS) == set(ApiKey)
    for key, api in APIS.items():
        for cls in (request_class(key), response_class(key)):
            assert key == cls.API_KEY
            assert range(api.first_version, api.last_version + 1) == cls.VERSIONS
            for version in cls.VERSIONS:
                assert cls.is_flexible(version) == (version >= api.first_flexible)


def test_an_unknown_key_has_no_class() -> None:
    for key in (-1, 4, 73, 999):
        with pytest.raises(ProtocolError, match="no API"):
            request_class(key)
        with pytest.raises(ProtocolError, match="no API"):
            response_class(key)


def test_only_nullable_fields_are_null_by_default() -> None:
    for owner, field in all_fields():
        if field.default is None:
            assert field.nullable[0] <= field.nullable[1], (owner, field.name)


def test_defaults_have_the_type_of_their_field() -> None:
    types: dict[str, type] = {"bool": bool, "string": str, "bytes": bytes, "uuid": bytes}
    for owner, field in all_fields():
        if field.required or field.default_value() is None:
            continue
        expected = types.get(field.kind)
        if field.kind.startswith(("int", "uint")):
            expected = int
        if expected is not None:
            assert type(field.default_value()) is expected, (owner, field.name)
        if field.kind == "uuid":
            assert field.default_value() == NO_UUID


def test_tags_of_a_struct_are_0_1_2_and_have_defaults() -> None:
    for message in all_messages():
        for cls in structs(message):
            tags = sorted(field.tag for field in cls.FIELDS if field.tag is not None)
            assert tags == list(range(len(tags))), cls
            for field in cls.FIELDS:
                if field.tag is not None:
                    assert not field.required
                    assert field.versions[0] >= message.FIRST_FLEXIBLE


def test_the_codec_loads_no_message_until_one_is_asked_for() -> None:
    program = (
        "import sys, millstream.protocol.codec, millstream.protocol.api as api\n"
        "loaded = [m for m in sys.modules if m.startswith('millstream.protocol.messages')]\n"
        "assert not loaded, loaded\n"
        "api.request_class(1)\n"
        "loaded = [m for m in sys.modules if m.startswith('millstream.protocol.messages.')]\n"
        "assert loaded == ['millstream.protocol.messages.fetch'], loaded\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
