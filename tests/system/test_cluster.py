"""Brokers as processes and a real ZooKeeper: who leads, who is the controller, who is refused."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.system.cluster_site import ClusterSite
from tests.system.zookeeper.conftest import StoreLoop

from millstream.client import Admin
from millstream.client.cluster import Cluster
from millstream.client.core.admin.configs import Change, Resource, ResourceType
from millstream.client.core.admin.topics import NewTopic
from millstream.client.metadata import Partition
from millstream.client.replicas import view_cluster
from millstream.controller import paths
from millstream.model.errors import ErrorCode
from millstream.protocol.api import FIRST_INTERNAL_KEY, ApiKey
from millstream.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millstream.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from millstream.protocol.messages.push_metadata import PushMetadataRequest, PushMetadataResponse

pytestmark = [pytest.mark.system, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSite]:
    with ClusterSite(tmp_path_factory.mktemp("cluster"), chroot="/millstream") as started:
        started.until(lambda client: len(client.metadata([]).brokers) == 3, "a cluster of three")
        yield started


def admin_of(bootstrap: str) -> Admin:
    return Admin(bootstrap_servers=bootstrap)


def partitions(client: Cluster, topic: str) -> tuple[Partition, ...]:
    return client.metadata([topic]).topics[topic].partitions


def in_sync(client: Cluster, topic: str, count: int = 3) -> bool:
    found = partitions(client, topic)
    return bool(found) and all(len(each.isr) == count and each.leader > 0 for each in found)


def create(cluster: ClusterSite, name: str, count: int = 6) -> None:
    with admin_of(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(name, count, 3)]).get_all()
    cluster.until(lambda client: in_sync(client, name), f"{name} in sync")


def controller_epoch(cluster: ClusterSite) -> int:
    loop = StoreLoop(cluster.connect)
    try:
        return int(loop.wait(loop.store().get(paths.CONTROLLER_EPOCH)).data)
    finally:
        loop.close()


def test_replicas_are_spread_and_in_sync(cluster: ClusterSite) -> None:
    create(cluster, "spread")
    with cluster.client() as client:
        found = partitions(client, "spread")
        assert {each.leader for each in found} == {1, 2, 3}
        assert all(each.leader == each.replicas[0] for each in found)
    with admin_of(cluster.bootstrap) as admin:
        view = view_cluster(admin)
    assert view.controller_id in (1, 2, 3)
    assert all(each.min_insync_replicas == 2 for each in view.partitions)


def test_a_broker_that_says_where_it_listens_may_be_given_partitions(
    cluster: ClusterSite,
) -> None:
    newcomer = next(each for each in (1, 2, 3) if each != cluster.controller_id())
    with admin_of(cluster.brokers[cluster.controller_id()].bootstrap) as admin:
        admin.create_topics([NewTopic("before", 1, 1)]).get_all()  # a warm connection
        for attempt in range(4):
            if attempt % 2:
                cluster.brokers[newcomer].kill()
            else:
                cluster.brokers[newcomer].stop()
            cluster.brokers[newcomer].start()
            topic = NewTopic(f"at-once-{attempt}", assignments={0: (newcomer,)})
            admin.create_topics([topic]).get_all()


def test_a_killed_broker_is_followed_in_assignment_order_and_comes_back(
    cluster: ClusterSite,
) -> None:
    create(cluster, "fallen")
    with cluster.client() as client:
        before = partitions(client, "fallen")
    victim = next(each for each in (1, 2, 3) if each != cluster.controller_id())
    cluster.brokers[victim].kill()
    cluster.until(
        lambda client: all(victim not in each.isr for each in partitions(client, "fallen")),
        "a smaller ISR",
    )
    with cluster.client() as client:
        for was, now in zip(before, partitions(client, "fallen"), strict=True):
            assert now.leader == next(each for each in was.replicas if each != victim)
            assert now.leader_epoch == was.leader_epoch + 1
    cluster.brokers[victim].start()
    cluster.until(lambda client: in_sync(client, "fallen"), "everybody in sync again")


def test_another_broker_follows_a_controller_that_was_killed(cluster: ClusterSite) -> None:
    create(cluster, "headless")
    first, epoch = cluster.controller_id(), controller_epoch(cluster)
    cluster.brokers[first].kill()

    def another(client: Cluster) -> bool:
        metadata = client.metadata([])
        return metadata.controller_id not in (first, -1) and first not in metadata.brokers

    cluster.until(another, "another controller")
    assert controller_epoch(cluster) == epoch + 1
    cluster.until(
        lambda client: all(each.leader != first for each in partitions(client, "headless")),
        "other leaders",
    )
    create_on_two(cluster, "afterwards")
    cluster.brokers[first].start()
    cluster.until(lambda client: in_sync(client, "headless"), "everybody in sync again")


def create_on_two(cluster: ClusterSite, name: str) -> None:
    with admin_of(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2, 2)]).get_all()


def test_a_broker_that_stops_gives_its_leaderships_away_first(cluster: ClusterSite) -> None:
    create(cluster, "handed-over")
    stopped = cluster.controller_id()  # the hardest case: the controller itself
    cluster.brokers[stopped].stop()
    with cluster.client() as client:
        found = partitions(client, "handed-over")
    assert all(each.leader not in (stopped, -1) for each in found)
    assert all(stopped not in each.isr for each in found)
    cluster.brokers[stopped].start()
    cluster.until(lambda client: in_sync(client, "handed-over"), "everybody in sync again")


def test_a_controller_that_sleeps_past_its_session_is_followed_and_fenced(
    cluster: ClusterSite,
) -> None:
    create(cluster, "asleep")
    sleeper = cluster.controller_id()
    epoch = controller_epoch(cluster)
    process = cluster.brokers[sleeper].process
    awake = [each for each in cluster.brokers if each != sleeper]
    os.kill(process.pid, signal.SIGSTOP)
    try:
        settings = Cluster.at(cluster.brokers[awake[0]].bootstrap)
        with settings as client:

            def followed() -> bool:
                metadata = client.metadata(["asleep"])
                found = metadata.topics["asleep"].partitions
                return metadata.controller_id in awake and all(
                    each.leader in awake for each in found
                )

            cluster.until(lambda _: followed(), "another controller")
    finally:
        os.kill(process.pid, signal.SIGCONT)
    cluster.until(lambda client: in_sync(client, "asleep"), "the sleeper back in sync")
    assert controller_epoch(cluster) == epoch + 1

    def agreed() -> bool:
        said = set()
        for broker_id in cluster.brokers:
            with client_of(cluster, broker_id) as client:
                said.add(client.metadata([]).controller_id)
        return len(said) == 1 and said != {sleeper}

    cluster.until(lambda _: agreed(), "one controller, another one, in the eyes of all")


def client_of(cluster: ClusterSite, broker_id: int) -> Cluster:
    return Cluster.at(cluster.brokers[broker_id].bootstrap)


def test_pushes_of_another_epoch_are_refused(cluster: ClusterSite) -> None:
    follower = next(each for each in (1, 2, 3) if each != cluster.controller_id())
    epoch = controller_epoch(cluster)
    push = PushMetadataRequest(
        controller_id=9,
        controller_epoch=epoch - 1,
        broker_epoch=1,
        brokers=[],
        topics=[],
        deleted=[],
    )
    with client_of(cluster, follower) as client:
        connection = client.any_connection()
        for controller, expected in (
            (epoch - 1, ErrorCode.STALE_CONTROLLER_EPOCH),
            (epoch, ErrorCode.STALE_BROKER_EPOCH),
        ):
            push.controller_epoch = controller
            answer = connection.call(push, PushMetadataResponse, version=0)
            assert ErrorCode.of(answer.error_code) is expected
        assert client.metadata([]).controller_id != 9


def test_what_brokers_ask_each_other_is_not_told_to_clients(cluster: ClusterSite) -> None:
    with cluster.client() as client:
        request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        told = client.any_connection().call(request, ApiVersionsResponse)
    assert told.api_keys
    keys = {each.api_key for each in told.api_keys}
    assert all(each < FIRST_INTERNAL_KEY for each in keys)
    assert ApiKey.UNREGISTER_BROKER in keys
    assert ApiKey.DESCRIBE_QUORUM not in keys, "there is no quorum of controllers to describe"


def test_topics_are_for_the_controller_and_settings_for_everybody(
    cluster: ClusterSite,
) -> None:
    create(cluster, "set")
    other = next(each for each in (1, 2, 3) if each != cluster.controller_id())
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name="misdirected",
                num_partitions=1,
                replication_factor=1,
                assignments=[],
                configs=[],
            )
        ],
        timeout_ms=5000,
    )
    with client_of(cluster, other) as client:
        answer = client.any_connection().call(request, CreateTopicsResponse)
        assert ErrorCode.of(answer.topics[0].error_code) is ErrorCode.NOT_CONTROLLER
    for resource, name, value in (
        (Resource(ResourceType.TOPIC, "set"), "retention.ms", "777000"),
        (Resource(ResourceType.BROKER, str(other)), "message.max.bytes", "99999"),
    ):
        with admin_of(cluster.brokers[other].bootstrap) as admin:
            admin.incremental_alter_configs({resource: [Change(name, value)]}).get_all()

        def is_set(_: Cluster, r: Resource = resource, n: str = name, v: str = value) -> bool:
            with admin_of(cluster.bootstrap) as admin:
                return [each.value for each in admin.describe_configs({r: [n]})[r].get()] == [v]

        cluster.until(is_set, f"{name} everywhere")


def test_a_topic_that_is_only_asked_for_is_created_by_the_controller(
    cluster: ClusterSite,
) -> None:
    other = next(each for each in (1, 2, 3) if each != cluster.controller_id())
    with client_of(cluster, other) as client:
        topic = client.topic("asked-for", create_missing=True)
    assert topic.partitions[0].leader in (1, 2, 3)


def test_a_topic_that_is_deleted_is_gone_everywhere_also_where_nobody_was_home(
    cluster: ClusterSite,
) -> None:
    create(cluster, "deleted", 2)
    create(cluster, "kept", 2)
    away = next(each for each in (1, 2, 3) if each != cluster.controller_id())
    cluster.brokers[away].stop()
    with admin_of(cluster.bootstrap) as admin:
        admin.delete_topics(["deleted"]).get_all()
    cluster.brokers[away].start()

    def nothing_left(_: Cluster) -> bool:
        return not any(
            entry.name.startswith("deleted-") and not entry.name.endswith("-delete")
            for broker in cluster.brokers.values()
            for entry in broker.data_directory.iterdir()
        )

    cluster.until(nothing_left, "the directories' end")
    cluster.until(lambda client: in_sync(client, "kept"), "everybody in sync again")


def test_a_topic_is_given_another_number_of_replicas(cluster: ClusterSite) -> None:
    command = [sys.executable, "-m", "millstream.cli.main", "topic"]
    for words in (
        ["create", "copied", "-p", "4", "-r", "1"],
        ["alter", "copied", "-r", "3"],
        ["alter", "copied", "-r", "2"],
    ):
        done = subprocess.run(
            [*command, *words, "-b", cluster.bootstrap],
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        wanted = int(words[-1])
        with admin_of(cluster.bootstrap) as admin:
            view = view_cluster(admin)
        found = [each for each in view.partitions if each.topic_partition.topic == "copied"]
        assert [len(each.replicas) for each in found] == [wanted] * 4
        assert all(set(each.isr) == set(each.replicas) for each in found)


def test_a_fourth_broker_takes_over_from_the_first(cluster: ClusterSite) -> None:
    create(cluster, "moved")
    fourth = cluster.add(4)
    fourth.start()
    cluster.until(lambda client: 4 in client.metadata([]).brokers, "a fourth broker")
    command = [sys.executable, "-m", "millstream.cli.main", "cluster"]
    done = subprocess.run(
        [*command, "reassign", "-b", cluster.bootstrap, "--brokers", "2,3,4", "--execute"],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1].startswith("moved ")
    with admin_of(cluster.bootstrap) as admin:
        assert not admin.list_partition_reassignments()
        view = view_cluster(admin)
    assert all(1 not in each.replicas for each in view.partitions)
    assert all(set(each.isr) == set(each.replicas) for each in view.partitions)
    cluster.brokers[1].stop()
    said = subprocess.run(
        [*command, "doctor", "-b", cluster.bootstrap],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert said.returncode == 0, said.stdout + said.stderr
    assert "no leader" not in said.stdout


def test_one_command_runs_a_cluster_and_ctrl_c_stops_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "millstream.cli.main", "cluster", "start", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--brokers", "2", "--dir", str(tmp_path / "site"), "--zookeeper"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        found = re.search(r"listening on (\S+), data in", first)
        assert found is not None, first
        assert "zookeeper.connect=127.0.0.1:" in process.stdout.readline()
        children = psutil.Process(process.pid).children(recursive=True)
        with admin_of(found[1]) as admin:
            admin.create_topics([NewTopic("t", 2, 2)]).get_all()
        with Cluster.at(found[1]) as client:
            while not in_sync(client, "t", 2):
                client.forget()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert not [each for each in children if each.is_running()]
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.long
def test_brokers_stop_although_zookeeper_is_gone(tmp_path: Path) -> None:
    with ClusterSite(tmp_path, brokers=2) as site:
        with admin_of(site.bootstrap) as admin:
            admin.create_topics([NewTopic("t", 4, 2)]).get_all()
        site.until(lambda client: in_sync(client, "t", 2))
        controller = site.controller_id()
        site.zookeeper.stop()
        # The controller first: it believes in its seat still, and its write is never answered.
        for number in sorted(site.brokers, key=lambda each: each != controller):
            site.brokers[number].stop()


def test_zookeeper_as_a_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "millstream.cli.main", "zookeeper", "start"]
    process = subprocess.Popen(
        [*command, "--dir", str(tmp_path / "zk")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        found = re.search(r"zookeeper listening on (\S+), data in", process.stdout.readline())
        assert found is not None
        loop = StoreLoop(found[1])
        loop.wait(loop.store().tree("/"))
        loop.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_another_broker_with_an_id_that_is_taken_does_not_start(cluster: ClusterSite) -> None:
    impostor = cluster.add(5, {"broker.id": "2", "zookeeper.session.timeout.ms": "1000"})
    del cluster.brokers[5]
    with pytest.raises(Exception, match="listening on") as raised:
        impostor.start()
    impostor.kill()
    assert "another broker is registered" in str(raised.value)
