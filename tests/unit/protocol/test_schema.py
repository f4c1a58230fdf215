from __future__ import annotations

import pytest

from millstream.protocol.encoding import MessageError
from millstream.protocol.fields import (
    LAST_VERSION,
    NEVER,
    Field,
    array,
    bool_,
    bytes_,
    int8,
    int32,
    parse_versions,
    string,
    struct,
    uint32,
    uuid,
)
from millstream.protocol.message import Message
from millstream.protocol.schema import Struct


class Point(Struct):
    """Two numbers that have defaults."""

    x: int = int32(default=-1)
    y: int = int32(default=-1)


class Drawing(Message, versions="0-4", flexible="2+"):
    """A bit of everything."""

    name: str = string()
    colour: str | None = string("1+", nullable="3+", default="", ignorable=True)
    points: list[Point] = array(Point)
    strokes: list[int] | None = array(int32(), "1+", nullable="1+", factory=list)
    origin: Point = struct(Point, "2+", tag=3, factory=Point)
    note: str | None = string("2+", nullable="0+", tag=1, default=None)
    frame: Point | None = struct(Point, "4+", nullable="0+", default=None)
    draft: bool = bool_("3+", default=True)
    data: bytes = bytes_("4+", default=b"")
    size: int = uint32("4+", default=0)


@pytest.mark.parametrize(
    ("text", "versions"),
    [("3", (3, 3)), ("0-12", (0, 12)), ("9+", (9, LAST_VERSION)), ("none", NEVER)],
)
def test_versions_are_a_number_a_range_or_open(text: str, versions: tuple[int, int]) -> None:
    assert parse_versions(text) == versions


def test_a_message_has_a_typed_keyword_constructor_with_defaults() -> None:
    drawing = Drawing(name="a", points=[])
    assert (drawing.colour, drawing.strokes, drawing.draft) == ("", [], True)
    assert drawing.strokes is not Drawing(name="a", points=[]).strokes


def test_a_field_without_default_must_be_given() -> None:
    with pytest.raises(TypeError, match="points"):
        Drawing(name="a")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="colour_"):
        Drawing(name="a", points=[], colour_="")  # type: ignore[call-arg]


def test_a_message_has_slots_and_no_more() -> None:
    drawing = Drawing(name="a", points=[])
    with pytest.raises(AttributeError):
        drawing.nam = "b"  # type: ignore[attr-defined]


def test_messages_are_compared_by_value() -> None:
    assert Drawing(name="a", points=[Point(x=1)]) == Drawing(name="a", points=[Point(x=1)])
    assert Drawing(name="a", points=[Point(x=1)]) != Drawing(name="a", points=[Point(x=2)])
    assert Point() != "Point"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point())


def test_a_message_shows_its_values() -> None:
    assert repr(Point(y=2)) == "Point(x=-1, y=2)"


def test_the_default_of_a_struct_is_shared_and_cannot_be_changed() -> None:
    drawing = Drawing(name="a", points=[])
    assert drawing.origin == Point()
    assert drawing.origin is Drawing(name="b", points=[]).origin
    with pytest.raises(AttributeError, match="assign a new Point"):
        drawing.origin.x = 3
    drawing.origin = Point(x=3)
    assert drawing.origin.x == 3


def test_nobody_sees_a_shared_default_before_it_is_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several threads may use a class for the first time at once."""

    class Pair(Struct):
        """Two numbers that another thread asks for while the first one is set."""

        first: int = int32(default=1)
        second: int = int32(default=2)

    seen: list[Struct] = []
    default_value = Field.default_value
    asked = 0

    def asks(field: Field) -> object:
        nonlocal asked
        asked += 1
        if asked == 2:
            other = Pair.shared_default()
            assert other == Pair(first=1, second=2)
            seen.append(other)
        return default_value(field)

    monkeypatch.setattr(Field, "default_value", asks)
    assert Pair.shared_default() is seen[0], "all have the same"


def test_old_versions_have_fixed_lengths_and_no_tags() -> None:
    drawing = Drawing(name="ab", points=[Point(x=1, y=2)], strokes=None)
    assert drawing.encode_body(1).hex(" ", 4) == (
        bytes.fromhex("0002 6162  0000  00000001 00000001 00000002  ffffffff").hex(" ", 4)
    )
    assert Drawing.decode_body(1, drawing.encode_body(1)) == drawing


def test_flexible_versions_have_compact_lengths_and_a_tag_buffer_in_every_struct() -> None:
    drawing = Drawing(name="ab", points=[Point(x=1, y=2)], strokes=[5])
    expected = "03 6162  01  02 00000001 00000002 00  02 00000005  00"
    assert drawing.encode_body(2) == bytes.fromhex(expected)
    assert Drawing.decode_body(2, bytes.fromhex(expected)) == drawing


def test_tagged_fields_are_written_when_not_default_in_the_order_of_their_tags() -> None:
    drawing = Drawing(name="", points=[], origin=Point(x=7), note="n")
    expected = "01 01 01 01  02  01 02 026e  03 09 00000007 ffffffff 00"
    assert drawing.encode_body(2) == bytes.fromhex(expected)
    assert Drawing.decode_body(2, bytes.fromhex(expected)) == drawing


def test_tagged_fields_are_read_in_any_order_with_unknown_ones_between() -> None:
    data = "01 01 01 01  03  03 09 00000007 ffffffff 00  09 03 aabbcc  01 02 026e"
    read = Drawing.decode_body(2, bytes.fromhex(data))
    assert read == Drawing(name="", points=[], origin=Point(x=7), note="n")


def test_a_nullable_struct_has_a_byte_in_front_in_flexible_versions_too() -> None:
    without = Drawing(name="", points=[], frame=None, data=b"z")
    assert without.encode_body(4) == bytes.fromhex("01 01 01 01 ff 01 027a 00000000 00")
    framed = Drawing(name="", points=[], frame=Point(x=0, y=0), draft=False, size=2**32 - 1)
    body = bytes.fromhex("01 01 01 01 01 0000000000000000 00 00 01 ffffffff 00")
    assert framed.encode_body(4) == body
    assert Drawing.decode_body(4, body) == framed


def test_a_value_that_the_version_lacks_is_an_error_unless_ignorable() -> None:
    Drawing(name="", points=[], colour="red").encode_body(0)
    with pytest.raises(MessageError, match=r"Drawing.strokes has a value.*version 0"):
        Drawing(name="", points=[], strokes=[1]).encode_body(0)
    with pytest.raises(MessageError, match=r"Drawing.origin has a value"):
        Drawing(name="", points=[], origin=Point(x=1)).encode_body(1)
    Drawing(name="", points=[], origin=Point()).encode_body(1)


def test_null_where_the_version_allows_none_is_an_error() -> None:
    with pytest.raises(MessageError, match="cannot hold"):
        Drawing(name="", points=[], colour=None).encode_body(2)
    Drawing(name="", points=[], colour=None).encode_body(3)


@pytest.mark.parametrize(
    "broken",
    [
        Drawing(name="x" * 32768, points=[]),
        Drawing(name="\ud800", points=[]),
        Drawing(name="", points=[Point(x=2**31)]),
        Drawing(name="", points=[], strokes=["1"]),  # type: ignore[list-item]
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_a_value_that_does_not_fit_is_an_error(broken: Drawing, version: int) -> None:
    with pytest.raises(MessageError):
        broken.encode_body(version)


def test_a_version_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(MessageError, match="no version 5"):
        Drawing(name="", points=[]).encode_body(5)


def test_strings_and_arrays_of_more_than_127_elements_have_longer_lengths() -> None:
    drawing = Drawing(name="x" * 127, points=[Point()] * 128, strokes=list(range(20000)))
    body = drawing.encode_body(2)
    assert body.startswith(bytes.fromhex("8001") + b"x" * 127 + bytes.fromhex("01 8101"))
    assert Drawing.decode_body(2, body) == drawing


class Names(Message, versions="0-1", flexible="1+"):
    """Arrays of everything that is no number."""

    names: list[str] = array(string())
    ids: list[bytes] = array(uuid())
    flags: list[bool] = array(bool_())
    small: list[int] = array(int8())


@pytest.mark.parametrize("version", [0, 1])
def test_arrays_hold_strings_uuids_and_booleans(version: int) -> None:
    names = Names(names=["a", ""], ids=[bytes(16), b"x" * 16], flags=[True, False], small=[-1])
    body = names.encode_body(version)
    assert Names.decode_body(version, body) == names
