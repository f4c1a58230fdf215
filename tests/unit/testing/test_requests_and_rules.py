"""Rules decide, recordings are asserted on; both in the test's own process."""

from __future__ import annotations

import pytest

from millstream.protocol.api import ApiKey
from millstream.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from millstream.testing.errors import TestBrokerError
from millstream.testing.frames import Frame, Unpacker, pack
from millstream.testing.requests import RecordedRequest, Recording
from millstream.testing.rules import SERVE, Requests, Rules


def frame(number: int, client_id: str = "app", member: str = "m", broker: int = 0) -> Frame:
    body = HeartbeatRequest(group_id="g", generation_id=1, member_id=member).encode_body(4)
    return {
        "event": "request",
        "number": number,
        "key": int(ApiKey.HEARTBEAT),
        "version": 4,
        "client_id": client_id,
        "connection": 1,
        "principal": "User:ANONYMOUS",
        "body": body,
    }


def request(client_id: str = "app", member: str = "m", broker: int = 0) -> RecordedRequest:
    told = frame(1, client_id, member)
    return RecordedRequest(broker, told["key"], 4, client_id, told["principal"], 1, told["body"])


def test_frames_arrive_in_pieces() -> None:
    frames: list[Frame] = [{"id": 1, "ok": b"\x00" * 70_000}, {"event": "x", "with": [(1, "a")]}]
    data = b"".join(map(pack, frames))
    for size in (1, 7, 4096, len(data)):
        unpacker = Unpacker()
        found: list[Frame] = []
        for start in range(0, len(data), size):
            found += unpacker.take(data[start : start + size])
        assert found == frames


def test_one_count_holds_for_all_brokers_and_the_oldest_rule_decides() -> None:
    watched: list[list[int]] = []
    rules = Rules(lambda: watched.append(rules.keys))
    failing = Requests(rules, ("Heartbeat",), 2, "app*", None, None).fail("NOT_COORDINATOR")
    only = Requests(rules, ("HEARTBEAT",), None, None, 1, lambda body: body.member_id == "m1")
    dropping = only.drop()
    assert watched == [[12], [12]]
    assert rules.decide(request("other", "m2")) == SERVE
    assert rules.decide(request("app-1", broker=0))["code"] == 16
    assert rules.decide(request("app-2", "m1", broker=1))["code"] == 16
    assert rules.decide(request("app-3", "m1", broker=0)) == SERVE
    assert rules.decide(request("app-3", "m1", broker=1)) == {"action": "silence"}
    assert (failing.times, dropping.times) == (2, 1)
    assert len(failing.wait(2, timeout=0)) == 2
    with pytest.raises(AssertionError, match="applied 1 times"):
        dropping.wait(2, timeout=0)
    with dropping:
        pass
    rules.clear()
    assert watched[-1] == []


def test_a_function_of_the_test_answers_or_fails() -> None:
    rules = Rules(lambda: None)
    answer = HeartbeatResponse(error_code=27)
    asked = Requests(rules, ("Heartbeat",), None, None, None, None)
    made = asked.answer(lambda request: answer if request.body.member_id == "m" else None)
    verdict = rules.decide(request())
    assert HeartbeatResponse.decode_body(4, verdict["body"]).error_code == 27
    assert rules.decide(request(member="n")) == SERVE
    made.remove()
    broken = asked.answer(lambda _: 1 // 0)  # type: ignore[arg-type, return-value]
    assert rules.decide(request()) == SERVE
    assert isinstance(rules.failures[0], ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        broken.remove()


def test_names_that_are_not_there() -> None:
    rules = Rules(lambda: None)
    with pytest.raises(TestBrokerError, match="no API 'Heartbeets'"):
        Requests(rules, ("Heartbeets",), 1, None, None, None)
    with pytest.raises(TestBrokerError, match="no error 'BAD_LUCK'"):
        Requests(rules, ("Heartbeat",), 1, None, None, None).fail("BAD_LUCK")


def test_a_recording_says_what_there_was_instead() -> None:
    synced: list[int] = []
    recording = Recording(lambda: synced.append(1))
    with pytest.raises(AssertionError, match="No requests were recorded"):
        recording.expect("Produce")
    for number in range(50):
        recording.take(0, frame(number, "app", f"m{number}"))
    done = HeartbeatResponse(error_code=25).encode_body(4)
    recording.take(0, {"event": "answer", "number": 3, "body": done, "error": None})
    recording.take(0, {"event": "answer", "number": 4, "body": None, "error": "gone"})
    recording.take(0, {"event": "answer", "number": 4, "body": None, "error": "again"})
    assert recording[3].answer.error_code == 25
    assert (recording[4].answer, recording[4].error) == (None, "gone")
    assert len(recording.expect("Heartbeat", 50)) == 50
    (found,) = recording.expect("Heartbeat", 1, where=lambda body: body.member_id == "m7")
    assert found.body.group_id == "g"
    recording.expect_none("Heartbeat", client_id="other")
    recording.expect_order("Heartbeat", "Heartbeat")
    with pytest.raises(AssertionError, match="there was no Produce at its place"):
        recording.expect_order("Heartbeat", "Produce")
    with pytest.raises(AssertionError) as failed:
        recording.expect("Heartbeat", at_least=51, client_id="app")
    text = str(failed.value)
    assert "at least 51 Heartbeat request(s) from 'app', there were 50" in text
    assert "… 10 before these" in text
    assert "50. Heartbeat v4 from 'app' to broker 0" in text
    count = len(synced)
    recording.stop()
    assert len(recording) == 50
    assert len(synced) == count
