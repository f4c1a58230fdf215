"""Histograms, the text of families, the lag in seconds, errors in answers."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.monitoring import parsed

from millstream.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from millstream.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from millstream.server.metrics import catalogue, families
from millstream.server.metrics.answers import count_fetched, errors_of
from millstream.server.metrics.families import Family, text_of
from millstream.server.metrics.group_lag import MAX_SAMPLES, EndOffsets
from millstream.server.metrics.histogram import SECONDS, Histogram
from millstream.storage.file_slice import FileSlice


def text(family: Family) -> str:
    return b"".join(text_of(family)).decode()


@given(st.lists(st.floats(0, 100)))
def test_a_histogram_counts_what_is_not_above_a_bound(times: list[float]) -> None:
    histogram = Histogram()
    for each in times:
        histogram.add(each)
    found = dict(histogram.cumulative())
    assert found.pop("+Inf") == histogram.count == len(times)
    assert [float(bound) for bound in found] == list(SECONDS)
    for bound, count in found.items():
        assert count == sum(each <= float(bound) for each in times)


def test_a_family_in_slices_is_one_family() -> None:
    family = Family(catalogue.TOPIC_SIZE)
    for number in range(3 * families.SLICE_SAMPLES + 1):
        family.add(number, f'topic "{number}"\\\n# HELP')
    pieces = list(text_of(family))
    assert len(pieces) == 4
    found = parsed(b"".join(pieces).decode())
    assert len(found) == len(family.samples)
    assert sum(line.startswith("# TYPE") for line in text(family).splitlines()) == 1


def test_a_counter_and_a_histogram_have_the_names_of_the_catalogue() -> None:
    counter = Family(catalogue.REQUESTS)
    counter.add(3, "Produce")
    assert ("millstream_requests_total", frozenset({("api", "Produce")})) in parsed(text(counter))
    histogram = Histogram()
    histogram.add(0.002)
    family = Family(catalogue.LOOP_LAG)
    family.add_histogram(histogram)
    found = parsed(text(family))
    assert found["millstream_loop_lag_seconds_bucket", frozenset({("le", "0.0025")})] == 1
    assert found["millstream_loop_lag_seconds_bucket", frozenset({("le", "0.001")})] == 0


def test_lag_in_seconds_counts_from_when_the_next_record_was_seen() -> None:
    ends = EndOffsets()
    for end, now_s in ((10, 0.0), (10, 5.0), (20, 10.0), (30, 20.0)):
        ends.note(end, now_s)
    assert ends.lag_seconds(30, 25.0) == 0
    assert ends.lag_seconds(20, 25.0) == 5.0
    assert ends.lag_seconds(19, 25.0) == 15.0
    assert ends.lag_seconds(0, 25.0) == 25.0
    ends.note(4, 30.0)  # a new topic of this name
    assert ends.lag_seconds(0, 31.0) == 1.0


def test_the_memory_of_ends_is_bounded_and_keeps_the_oldest_and_the_newest() -> None:
    ends = EndOffsets()
    for number in range(1, 10 * MAX_SAMPLES):
        ends.note(number, float(number))
    assert len(ends._ends) <= MAX_SAMPLES
    now_s = 10.0 * MAX_SAMPLES
    assert ends.lag_seconds(0, now_s) == now_s - 1
    assert ends.lag_seconds(10 * MAX_SAMPLES - 2, now_s) == 1


def test_errors_are_found_wherever_a_message_has_them() -> None:
    topics = [
        MetadataResponseTopic(error_code=code, name="t", partitions=[], is_internal=False)
        for code in (0, 3, 5)
    ]
    answer = MetadataResponse(
        brokers=[], controller_id=1, topics=topics, cluster_id=None, throttle_time_ms=0
    )
    assert list(errors_of(answer)) == [3, 5]


def test_what_a_fetch_gave_is_counted_by_topic(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(bytes(100))
    with (tmp_path / "log").open("rb") as file:
        records = FileSlice(file, 0, 60)  # type: ignore[arg-type]

        def partition(code: int, held: FileSlice | None) -> PartitionData:
            return PartitionData(
                partition_index=0,
                error_code=code,
                high_watermark=0,
                aborted_transactions=None,
                records=held,
            )

        given_partitions = [partition(0, records), partition(0, None), partition(0, records)]
        answer = FetchResponse(
            responses=[FetchableTopicResponse(topic="t", partitions=given_partitions)]
        )
        totals = {"t": 5}
        assert not count_fetched(answer, totals)
        assert totals == {"t": 125}
        answer.responses[0].partitions.append(partition(6, None))
        assert count_fetched(answer, totals)
