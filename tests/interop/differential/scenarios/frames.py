"""Frames that hold no sound request, for every API and version: who closes, who answers."""

from __future__ import annotations

from typing import Final

from tests.interop.differential import apis, codec
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import CLIENT_ID, Session

Case = tuple[str, int]

FRAMED: Final = list(apis.SERVED)
ALL: Final = {
    f"{api}_v{version}": (api, version) for api in FRAMED for version in apis.versions(api)
}
FLEXIBLE: Final = {name: case for name, case in ALL.items() if codec.is_flexible(*case)}
ENDS: Final = {
    f"{api}_v{version}": (api, version)
    for api in FRAMED
    for version in {apis.versions(api)[0], apis.versions(api)[-1]}
}


def encoded(case: Case) -> bytes:
    """A request with nothing but zeros, empty lists and defaults."""
    return codec.encode_request(*case, {}, 7, CLIENT_ID)


def header_size(case: Case) -> int:
    """Bytes of the header in front of the body."""
    return 10 + len(CLIENT_ID) + codec.is_flexible(*case)


def ask(s: Session, case: Case, frame: bytes) -> None:
    """Record whether there is an answer at all."""
    s.main.post_raw(*case, frame)
    s.main.expect_unanswered()


def has_body(case: Case) -> bool:
    return len(encoded(case)) > header_size(case)


@scenario(cases={name: case for name, case in ALL.items() if has_body(case)})
def last_byte_missing(s: Session, case: Case) -> None:
    ask(s, case, encoded(case)[:-1])


@scenario(cases=ALL)
def a_byte_too_many(s: Session, case: Case) -> None:
    ask(s, case, encoded(case) + b"\0")


@scenario(cases={name: case for name, case in ENDS.items() if has_body(case)})
def no_body(s: Session, case: Case) -> None:
    ask(s, case, encoded(case)[: header_size(case)])


@scenario(cases=FLEXIBLE)
def unknown_tag_behind_the_body(s: Session, case: Case) -> None:
    """The last byte says that there are no tagged fields; here there is one that nobody knows."""
    ask(s, case, encoded(case)[:-1] + b"\x01\x63\x02ab")


@scenario(cases=FLEXIBLE)
def unknown_tag_in_the_header(s: Session, case: Case) -> None:
    size = header_size(case)
    frame = encoded(case)
    ask(s, case, frame[: size - 1] + b"\x01\x63\x02ab" + frame[size:])


@scenario(cases={name: case for name, case in ENDS.items() if codec.is_flexible(*case)})
def tag_longer_than_the_frame(s: Session, case: Case) -> None:
    ask(s, case, encoded(case)[:-1] + b"\x01\x63\x7fab")


@scenario(cases={name: case for name, case in ENDS.items() if codec.is_flexible(*case)})
def tag_count_without_end(s: Session, case: Case) -> None:
    ask(s, case, encoded(case)[:-1] + b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")


@scenario(cases={name: case for name, case in ENDS.items() if codec.is_flexible(*case)})
def same_tag_twice(s: Session, case: Case) -> None:
    ask(s, case, encoded(case)[:-1] + b"\x02\x63\x01a\x63\x01b")


LISTS: Final[dict[str, Case]] = {
    "DeleteGroups_v0": ("DeleteGroups", 0),
    "DeleteGroups_v2": ("DeleteGroups", 2),
    "DescribeGroups_v0": ("DescribeGroups", 0),
    "DescribeGroups_v5": ("DescribeGroups", 5),
    "Metadata_v0": ("Metadata", 0),
    "Metadata_v1": ("Metadata", 1),
    "Metadata_v9": ("Metadata", 9),
    "DescribeProducers_v0": ("DescribeProducers", 0),
    "CreateTopics_v2": ("CreateTopics", 2),
    "CreateTopics_v7": ("CreateTopics", 7),
    "DescribeConfigs_v1": ("DescribeConfigs", 1),
    "DescribeConfigs_v4": ("DescribeConfigs", 4),
}
"""Requests whose body begins with a list."""


def with_count(case: Case, plain: bytes, compact: bytes) -> bytes:
    """The frame with another length in front of its (empty) list."""
    frame = encoded(case)
    size = header_size(case)
    if codec.is_flexible(*case):
        return frame[:size] + compact + frame[size + 1 :]
    return frame[:size] + plain + frame[size + 4 :]


@scenario(cases=LISTS)
def list_is_null(s: Session, case: Case) -> None:
    ask(s, case, with_count(case, b"\xff\xff\xff\xff", b"\0"))


@scenario(cases=LISTS)
def list_length_minus_two(s: Session, case: Case) -> None:
    ask(s, case, with_count(case, b"\xff\xff\xff\xfe", b"\xff\xff\xff\xff\x0f"))


@scenario(cases=LISTS)
def list_length_of_the_largest_int(s: Session, case: Case) -> None:
    ask(s, case, with_count(case, b"\x7f\xff\xff\xff", b"\x80\x80\x80\x80\x08"))


@scenario(cases=LISTS)
def list_length_one_and_no_element(s: Session, case: Case) -> None:
    ask(s, case, with_count(case, b"\0\0\0\1", b"\2"))


@scenario(cases={"v2": ("DeleteGroups", 2), "v5": ("DescribeGroups", 5)})
def text_that_is_no_utf_8(s: Session, case: Case) -> None:
    frame = with_count(case, b"", b"\2\x03\xff\xfe")
    ask(s, case, frame)


@scenario(cases={"v0": ("DescribeGroups", 0)})
def null_text_where_none_may_be(s: Session, case: Case) -> None:
    ask(s, case, with_count(case, b"\0\0\0\1\xff\xff", b""))


@scenario(
    cases={"two_bytes_as_five": b"\x82\x80\x80\x80\x00", "six_bytes": b"\x81\x80\x80\x80\x80\x00"}
)
def overlong_varint(s: Session, count: bytes) -> None:
    """More bytes than the number needs; more than a varint may have."""
    case = ("DeleteGroups", 2)
    frame = with_count(case, b"", count + (b"\2g" if count[0] == 0x82 else b""))
    ask(s, case, frame)
