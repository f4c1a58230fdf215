"""ApiVersions: every version, versions that nobody serves, names of client software."""

from __future__ import annotations

from tests.interop.differential import apis
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Answer, Session

SOFTWARE = {"client_software_name": "differential", "client_software_version": "1.0"}


def compared_apis(answer: Answer) -> Answer:
    """The answer with the APIs that both brokers serve; features are each broker's own."""
    keys = {key for key, _ in apis.SERVED.values()}
    shown = [each for each in answer["api_keys"] if each["api_key"] in keys]
    features = ("supported_features", "finalized_features", "finalized_features_epoch")
    return {
        name: value for name, value in answer.items() if name not in (*features, "api_keys")
    } | {"api_keys": shown}


@scenario(versions="ApiVersions")
def all_versions(s: Session, version: int) -> None:
    s.call_for(compared_apis, "ApiVersions", version, **SOFTWARE)


@scenario(cases={"five": 5, "hundred": 100, "max": 32767, "negative": -1})
def version_not_served(s: Session, version: int) -> None:
    """The answer comes in the layout of version 0, with error 35 and the versions of this API."""
    header = b"\0\x12" + version.to_bytes(2, "big", signed=True) + b"\0\0\0\7\0\1x"
    s.main.post_raw("ApiVersions", 0, header + b"\0\2a\2b\0")
    s.main.receive()


@scenario
def version_not_served_with_an_unreadable_body(s: Session) -> None:
    s.main.post_raw("ApiVersions", 0, b"\0\x12\0\x09\0\0\0\7\0\1x" + b"\xff" * 20)
    s.main.receive()


@scenario
def the_connection_serves_on_after_an_unserved_version(s: Session) -> None:
    s.main.post_raw("ApiVersions", 0, b"\0\x12\0\x09\0\0\0\7\0\1x\0\2a\2b\0")
    s.main.receive()
    s.call_for(compared_apis, "ApiVersions", 3, **SOFTWARE)


NAMES = {
    "empty": "",
    "one_letter": "a",
    "dash_inside": "a-b",
    "dot_inside": "a.b",
    "dash_first": "-a",
    "dash_last": "a-",
    "dot_last": "a.",
    "space": "a b",
    "slash": "a/b",
    "umlaut": "ä",
    "underscore": "a_b",
    "long": "a" * 1000,
    "newline_last": "a\n",
    "digits": "123",
}


@scenario(cases=NAMES)
def software_name(s: Session, name: str) -> None:
    fields = SOFTWARE | {"client_software_name": name}
    s.call_for(compared_apis, "ApiVersions", 3, **fields)


@scenario(cases=NAMES)
def software_version(s: Session, text: str) -> None:
    fields = SOFTWARE | {"client_software_version": text}
    s.call_for(compared_apis, "ApiVersions", 4, **fields)


@scenario
def no_client_id(s: Session) -> None:
    peer = s.peer("nameless", client_id=None)
    peer.post("ApiVersions", 0)
    answer = peer.quiet_receive()
    s.record("ApiVersions v0 without a client id", compared_apis(answer))


@scenario(
    cases={
        "unknown_key": b"\x03\xe7\0\0\0\0\0\7\0\1x",
        "negative_key": b"\xff\xfe\0\0\0\0\0\7\0\1x",
        "inner_broker_key": b"\0\4\0\0\0\0\0\7\0\1x",
        "cut_off_header": b"\0\x12\0",
        "cut_off_client_id": b"\0\x12\0\0\0\0\0\7\0\x40x",
        "negative_client_id": b"\0\x12\0\0\0\0\0\7\xff\xf0",
        "no_bytes": b"",
        "cut_off_body": b"\0\3\0\1\0\0\0\7\0\1x\0\0",
    }
)
def frame_that_is_no_request(s: Session, frame: bytes) -> None:
    s.main.post_raw("ApiVersions", 0, frame)
    s.main.expect_unanswered()


@scenario(
    cases={
        "Produce": (0, 14),
        "Fetch": (1, 19),
        "Fetch_old": (1, 3),
        "ListOffsets": (2, 0),
        "Metadata": (3, 14),
        "OffsetCommit": (8, 1),
        "FindCoordinator": (10, 7),
        "JoinGroup": (11, 10),
        "CreateTopics": (19, 1),
        "DeleteTopics": (20, 0),
        "OffsetForLeaderEpoch": (23, 1),
        "DescribeConfigs": (32, 0),
        "OffsetDelete": (47, 1),
        "DescribeTopicPartitions": (75, 1),
    }
)
def request_of_a_version_not_served(s: Session, request: tuple[int, int]) -> None:
    key, version = request
    header = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\7\0\1x"
    s.main.post_raw("ApiVersions", 0, header + bytes(40))
    s.main.expect_unanswered()


@scenario(
    cases={
        "request_larger_than_allowed": (104_857_601).to_bytes(4, "big"),
        "length_max": b"\x7f\xff\xff\xff",
        "length_negative": b"\xff\xff\xff\xff",
        "length_min": b"\x80\0\0\0",
    }
)
def frame_length(s: Session, length: bytes) -> None:
    s.main.post_bytes("ApiVersions", 0, length)
    s.main.receive()


@scenario
def bytes_behind_the_body(s: Session) -> None:
    s.main.post_raw("ApiVersions", 0, b"\0\x12\0\0\0\0\0\7\0\1x" + b"extra")
    s.main.expect_unanswered()


@scenario
def unknown_tags_are_skipped(s: Session) -> None:
    """Unknown tagged fields in the header and in the body."""
    header = b"\0\x12\0\3\0\0\0\7\0\1x" + b"\x01\x63\x03abc"
    s.main.post_raw("ApiVersions", 3, header + b"\2a\2b" + b"\x02\x07\x01x\x64\x00")
    answer = s.main.quiet_receive()
    s.record("ApiVersions v3 with unknown tags", compared_apis(answer))
