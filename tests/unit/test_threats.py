"""Each threat of a network broker has a test, and the page that says which one is right.

``python -m tests.unit.test_threats`` prints the table of decision 0091.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from millstream.storage.files import LocalFileSystem

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs/decisions/0091-what-a-secured-cluster-survives.md"

THREATS: Final[dict[str, tuple[str, ...]]] = {
    "frame size": (
        "tests/system/test_hostile_input.py::test_an_impossible_frame_size_hangs_up",
        "tests/system/test_hostile_input.py::test_many_declared_giants_cost_nothing",
        "tests/unit/server/test_sasl_session.py::"
        "test_frames_are_small_until_the_client_is_authenticated",
    ),
    "counts": (
        "tests/unit/protocol/test_limits.py::test_a_count_is_measured_by_the_smallest_element",
        "tests/unit/protocol/test_limits.py::test_an_over_long_varint_is_refused",
        "tests/unit/protocol/test_limits.py::test_the_number_of_tagged_fields_is_bounded",
        "tests/unit/protocol/test_limits.py::test_elements_are_counted_over_the_whole_message",
    ),
    "memory": (
        "tests/unit/net/test_receive_budget.py::"
        "test_over_the_limit_the_frame_that_began_first_goes_on_and_the_others_wait",
        "tests/unit/net/test_listener.py::test_one_address_may_hold_so_many_connections",
        "tests/unit/net/test_listener.py::test_so_many_new_connections_in_a_second",
        "tests/unit/net/test_connection.py::test_answers_that_nobody_reads_have_a_limit",
        "tests/unit/runtime/replicas/test_fetch_sessions.py::"
        "test_all_sessions_together_hold_so_many_partitions",
        "tests/unit/storage/test_producer_state.py::"
        "test_idle_producers_expire_and_open_transactions_keep_theirs",
        "tests/unit/runtime/controlling/test_standalone_controller.py::"
        "test_topics_on_the_way_have_a_limit",
        "tests/unit/net/test_handshake_bounds.py::"
        "test_a_peer_that_is_gone_leaves_nothing_to_the_garbage_collector",
    ),
    "slow clients": (
        "tests/system/test_hostile_input.py::test_a_frame_that_drips_hangs_up_too",
        "tests/unit/net/test_half_open.py::test_a_peer_that_dribbles_has_no_more_time",
        "tests/unit/net/test_listener.py::test_a_peer_that_leaves_its_answer_unread_is_closed",
        "tests/system/test_before_authentication.py::"
        "test_ten_thousand_peers_that_stay_in_the_handshake",
    ),
    "decompression bombs": (
        "tests/unit/records/test_compression.py::test_a_bomb_costs_no_more_than_the_cap",
        "tests/unit/records/test_compression.py::test_a_zstd_window_over_the_cap_is_refused",
        "tests/unit/records/test_validation.py::test_a_bomb_for_a_compacted_topic_is_capped",
    ),
    "batches": (
        "tests/system/test_hostile_input.py::"
        "test_a_batch_that_claims_what_it_is_not_is_refused_and_the_connection_lives",
        "tests/unit/records/test_validation.py::test_more_records_than_the_bytes_can_hold",
        "tests/property/test_kernel_fuzz.py::test_checking_what_is_produced",
    ),
    "schemas": (
        "tests/unit/schemas/test_avro_bounds.py::"
        "test_a_datum_that_is_nested_without_end_is_refused",
        "tests/unit/schemas/test_avro_bounds.py::test_items_that_take_no_bytes_are_counted",
        "tests/unit/spark/lakehouse/test_hostile_schemas.py::"
        "test_an_avro_schema_without_columns_rejects_its_own_records",
        "tests/property/test_rows_fuzz.py::test_avro",
    ),
    "names": (
        "tests/unit/controller/test_loading.py::test_names_that_collide",
        "tests/unit/storage/test_small_files.py::test_other_directories_are_not_partitions",
        "tests/unit/test_threats.py::test_what_a_broker_writes_is_read_by_its_user_alone",
    ),
    "authorization": (
        "tests/unit/handlers/test_access.py::test_without_a_rule_it_is_refused_with_kafkas_error",
        "tests/unit/handlers/test_access.py::test_what_is_denied_stays_denied",
        "tests/unit/handlers/test_access.py::test_a_topic_by_id_is_refused_without_its_name",
        "tests/system/cluster/test_refused_between_brokers.py::"
        "test_with_a_certificate_that_is_no_brokers",
    ),
    "SASL": (
        "tests/unit/security/sasl/test_scram.py::"
        "test_an_unknown_user_and_a_wrong_password_look_the_same",
        "tests/unit/security/sasl/test_scram.py::"
        "test_a_replayed_final_message_fails_with_another_nonce",
        "tests/unit/security/sasl/test_jwt_validation.py::test_claims_that_are_refused",
        "tests/unit/server/test_sasl_session.py::test_a_wrong_password_is_answered_late",
        "tests/system/test_sasl.py::test_a_client_goes_on_beyond_the_end_of_its_session",
        "tests/system/test_sasl.py::test_no_secret_is_shown",
        "tests/system/test_before_authentication.py::test_a_thousand_failed_logins_write_few_lines",
    ),
    "TLS": (
        "tests/unit/security/test_tls.py::"
        "test_cipher_suites_and_versions_are_those_that_were_asked_for",
        "tests/unit/security/test_tls.py::test_a_host_name_is_checked_unless_that_is_switched_off",
        "tests/unit/net/test_tls_hostile.py::test_a_flood_of_key_updates_is_closed",
        "tests/unit/net/test_handshake_bounds.py::"
        "test_a_handshake_that_is_longer_than_any_is_closed",
        "tests/system/test_tls.py::test_a_client_with_a_wrong_certificate_is_refused",
        "tests/system/cluster/test_everything_on.py::test_a_cluster_with_everything_on",
    ),
    "ZooKeeper": (
        "tests/system/zookeeper/test_security.py::"
        "test_nodes_are_changed_by_brokers_alone_and_credentials_read_by_them",
        "tests/unit/controller/test_loading.py::test_a_damaged_topic_is_named",
        "tests/unit/runtime/metadata/test_access_rules.py::"
        "test_what_cannot_be_read_is_skipped_counted_and_logged",
    ),
    "Python": (
        "tests/unit/test_threats.py::test_nothing_that_runs_what_it_reads",
        "tests/unit/handlers/test_access.py::"
        "test_a_line_break_in_a_name_does_not_begin_a_line_of_the_log",
        "tests/property/test_kernel_fuzz.py::test_decoding",
        "tests/system/test_hostile_input.py::test_mutated_frames_are_answered_or_hung_up_on",
    ),
}
"""A test, or several, of each threat: its file and its function."""

_RUNS_WHAT_IT_READS: Final = {"pickle", "cPickle", "dill", "marshal", "shelve", "yaml"}
_RUNS_TEXT: Final = {"eval", "exec"}
_MAKE_CODE_FROM_TABLES: Final = {
    "src/millstream/protocol/source.py",
    "src/millstream/protocol/schema.py",
}
"""They run what was made from the tables of the protocol, before any byte has come."""

_BETWEEN_TEST_AND_BROKER = "src/millstream/testing/frames.py"
"""It reads what a test's own processes send over sockets that they inherit. No broker that serves
loads it: the layers forbid it.
"""


def table() -> str:
    """Return the table of the page."""
    lines = ["| threat | tests |", "| --- | --- |"]
    for threat, tests in THREATS.items():
        files: dict[str, list[str]] = {}
        for test in tests:
            path, name = test.split("::")
            files.setdefault(path.removeprefix("tests/"), []).append(name.removeprefix("test_"))
        told = "; ".join(f"`{path}`: {', '.join(names)}" for path, names in files.items())
        lines.append(f"| {threat} | {told} |")
    return "\n".join(lines)


def test_the_page_has_this_table() -> None:
    assert table() in PAGE.read_text(), "write it anew: python -m tests.unit.test_threats"


@pytest.mark.parametrize("test", [each for tests in THREATS.values() for each in tests])
def test_each_test_is_there(test: str) -> None:
    path, name = test.split("::")
    assert re.search(rf"^ *(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE)


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield the modules whose text has one of the words at all: to parse one takes long."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = path.read_text()
        if any(word in text for word in _RUNS_WHAT_IT_READS | _RUNS_TEXT):
            yield str(path.relative_to(ROOT)), ast.parse(text)


@pytest.mark.slow
def test_nothing_that_runs_what_it_reads() -> None:
    """A broker never unpickles, and evaluates no text."""
    found: list[str] = []
    looked_at = dict(modules())
    assert _MAKE_CODE_FROM_TABLES | {_BETWEEN_TEST_AND_BROKER} <= looked_at.keys()
    for path, module in looked_at.items():
        if path == _BETWEEN_TEST_AND_BROKER:
            continue
        for node in ast.walk(module):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [each.name.partition(".")[0] for each in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [(node.module or "").partition(".")[0]]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                names = [node.func.id] if path not in _MAKE_CODE_FROM_TABLES else []
            bad = set(names) & (_RUNS_WHAT_IT_READS | _RUNS_TEXT)
            found += [f"{path}:{node.lineno}: {name}" for name in bad]
    assert not found


def test_what_a_broker_writes_is_read_by_its_user_alone(tmp_path: Path) -> None:
    files = LocalFileSystem()
    files.make_directory(str(tmp_path / "logs"))
    files.make_directory(str(tmp_path / "logs" / "t-0"))
    for made in (tmp_path / "logs", tmp_path / "logs" / "t-0"):
        assert made.stat().st_mode & 0o777 == 0o700


if __name__ == "__main__":
    print(table())
