"""DescribeCluster: endpoint types, fenced brokers, authorized operations."""

from __future__ import annotations

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session


@scenario(versions="DescribeCluster")
def cluster(s: Session, version: int) -> None:
    s.call("DescribeCluster", version, endpoint_type=1)


@scenario(versions="DescribeCluster")
def authorized_operations(s: Session, version: int) -> None:
    s.call("DescribeCluster", version, endpoint_type=1, include_cluster_authorized_operations=True)


@scenario(versions=[1, 2], cases={"controllers": 2, "none": 0, "three": 3, "negative": -1})
def endpoint_type(s: Session, kind: int, version: int) -> None:
    s.call("DescribeCluster", version, endpoint_type=kind)


@scenario
def fenced_brokers(s: Session) -> None:
    s.call("DescribeCluster", 2, endpoint_type=1, include_fenced_brokers=True)
