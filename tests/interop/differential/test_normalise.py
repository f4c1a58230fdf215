"""What the runner calls equal, and what it must not."""

from __future__ import annotations

import time

from tests.interop.differential.batches import Batch, batch, describe_batches
from tests.interop.differential.normalise import Normaliser, differences


def normalised(answer: dict[str, object], **names: str) -> object:
    normaliser = Normaliser()
    for label, name in names.items():
        normaliser.know_name(name, label)
    return normaliser.normalise(answer)


def test_names_and_ids_of_a_run_get_labels() -> None:
    normaliser = Normaliser()
    normaliser.know_name("t-1f", "t")
    normaliser.know_topic_id("ab" * 16, "t")
    answer = {"topics": [{"name": "t-1f", "topic_id": "ab" * 16}, {"topic_id": "cd" * 16}]}
    assert normaliser.normalise(answer) == {
        "topics": [{"name": "$t", "topic_id": "<id of $t>"}, {"topic_id": "<uuid 1>"}]
    }


def test_random_values_are_numbered_so_that_identity_is_compared() -> None:
    one = "a-00000000-0000-4000-8000-000000000001"
    two = "a-00000000-0000-4000-8000-000000000002"
    same = normalised({"leader": one, "member_id": one})
    other = normalised({"leader": one, "member_id": two})
    assert same == {"leader": "a-<uuid 1>", "member_id": "a-<uuid 1>"}
    assert differences(same, other) != []


def test_only_times_near_the_present_are_hidden() -> None:
    now = int(time.time() * 1000)
    assert normalised({"log_append_time_ms": now}) == {"log_append_time_ms": "<now>"}
    assert normalised({"log_append_time_ms": -1}) == {"log_append_time_ms": -1}
    assert normalised({"offset": now}) == {"offset": now}


def test_lists_are_sorted_by_what_names_their_elements() -> None:
    parts = [{"partition_index": 10, "error_code": 0}, {"partition_index": 9, "error_code": 3}]
    assert normalised({"partitions": parts}) == {"partitions": parts[::-1]}
    assert normalised({"isr_nodes": [3, 1]}) == {"isr_nodes": [3, 1]}


def test_messages_are_compared_for_null_only() -> None:
    assert differences({"error_message": "a"}, {"error_message": "b"}) == []
    assert differences({"error_message": None}, {"error_message": "b"}) != []
    assert differences({"name": "a"}, {"name": "b"}) == ['.name: Kafka "a", here "b"']


def test_a_missing_field_an_extra_field_and_another_type_are_differences() -> None:
    assert differences({"a": 1}, {}) == [".a: Kafka 1, here missing"]
    assert differences({}, {"a": 1}) == [".a: Kafka has no such field, here 1"]
    assert differences({"a": 0}, {"a": False}) != []


def test_elements_are_matched_by_name() -> None:
    kafka = [{"name": "a", "x": 1}, {"name": "b", "x": 2}]
    assert differences(kafka, kafka[1:]) == ['.[name=a]: Kafka {"name": "a", "x": 1}, here missing']


def test_batches_show_what_is_wrong_with_them() -> None:
    good = batch("a")
    [described] = describe_batches(good)
    assert described["crc"] == "right"
    assert describe_batches(good[:-1] + b"x")[0]["crc"] == "wrong"
    assert describe_batches(good + b"rest")[1] == {"cut_off_bytes": 4}
    assert describe_batches(Batch(count=3).encode())[0]["count"] == 3
