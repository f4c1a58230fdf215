"""A ZooKeeper that asks who a broker is: rules on nodes, a digest, TLS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from tests import certificates
from tests.system.zookeeper.conftest import StoreLoop
from tests.zookeeper_server import java_program

from millstream.cli.main import main
from millstream.model.metadata_store import Create, MetadataStoreError
from millstream.runtime.clock import LoopClock
from millstream.zookeeper.embedded import JavaProgram, ZooKeeperServer, free_port
from millstream.zookeeper.metadata_store import ZooKeeperMetadataStore
from millstream.zookeeper.security import ZooKeeperSecurity

pytestmark = pytest.mark.system

DIGEST = "broker:sesame"


@contextmanager
def opened(
    loop: StoreLoop, security: ZooKeeperSecurity, connect: str
) -> Iterator[ZooKeeperMetadataStore]:
    store = ZooKeeperMetadataStore(
        connect,
        clock=LoopClock(loop.loop),
        session_timeout_ms=6000,
        call_on_loop=loop.loop.call_soon_threadsafe,
        security=security,
    )
    loop.wait(store.open(10_000))
    try:
        yield store
    finally:
        loop.wait(store.close())


def test_nodes_are_changed_by_brokers_alone_and_credentials_read_by_them(
    stores: StoreLoop, server: ZooKeeperServer
) -> None:
    security = ZooKeeperSecurity(digest=DIGEST, sets_acl=True)
    with opened(stores, security, stores.connect) as store:
        for path in ("/config", "/config/users", "/config/users/ann", "/topics"):
            stores.wait(store.multi((Create(path, b"x"),)))
        stranger = KazooClient(hosts=stores.connect)
        stranger.start(10)
        try:
            assert stranger.get("/topics")[0] == b"x"
            with pytest.raises(NoAuthError):
                stranger.set("/topics", b"y")
            with pytest.raises(NoAuthError):
                stranger.delete("/config/users/ann")
            for path in ("/config/users", "/config/users/ann"):
                with pytest.raises(NoAuthError):
                    stranger.get(path)
        finally:
            stranger.stop()
            stranger.close()
        # Another broker with the same digest may do it all.
        with opened(stores, security, stores.connect) as other:
            assert stores.wait(other.get("/config/users/ann")).data == b"x"
        with (
            opened(stores, ZooKeeperSecurity(digest="broker:wrong"), stores.connect) as wrong,
            pytest.raises(MetadataStoreError),
        ):
            stores.wait(wrong.get("/config/users/ann"))


def test_the_first_user_of_a_cluster_is_written_for_its_brokers_alone(
    stores: StoreLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_USER_PASSWORD", "secret")
    monkeypatch.setenv("MILLSTREAM_ZOOKEEPER_DIGEST", DIGEST)
    with opened(stores, ZooKeeperSecurity(digest=DIGEST, sets_acl=True), stores.connect):
        pass  # makes the root of its nodes
    for _ in range(2):  # the second time another password is given to a user that is there
        assert main(["user", "add", "ann", "--zookeeper", stores.connect]) == 0
    stranger = KazooClient(hosts=stores.connect)
    stranger.start(10)
    try:
        for path in ("/config/users", "/config/users/ann"):
            with pytest.raises(NoAuthError):
                stranger.get(path)
            with pytest.raises(NoAuthError):
                stranger.set(path, b"")
        with pytest.raises(NoAuthError):
            stranger.set("/config", b"")
    finally:
        stranger.stop()
        stranger.close()
    with opened(stores, ZooKeeperSecurity(digest=DIGEST), stores.connect) as store:
        assert b"SCRAM-SHA-512" in stores.wait(store.get("/config/users/ann")).data


class TlsServer(ZooKeeperServer):
    """A server whose only client port has TLS; it needs Netty beside ZooKeeper's own jars."""

    def __init__(self, directory: Path) -> None:
        program = java_program()
        jars = Path(pyspark.__file__).parent / "jars"
        netty = ":".join(str(path) for path in sorted(jars.glob("netty-*.jar")))
        super().__init__(
            JavaProgram(program.java, f"{program.class_path}:{netty}"), directory, port=free_port()
        )
        self.secure_port = free_port()
        signed = certificates.server()
        directory.mkdir(parents=True, exist_ok=True)
        self.key = certificates.write_pem(directory, "zookeeper", signed)
        self.trust = certificates.write_trust(directory)

    def _configuration(self, data: Path) -> str:
        return super()._configuration(data) + "\n".join(
            [
                f"secureClientPort={self.secure_port}",
                "secureClientPortAddress=127.0.0.1",
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
                f"ssl.keyStore.location={self.key}",
                "ssl.keyStore.type=PEM",
                f"ssl.trustStore.location={self.trust}",
                "ssl.trustStore.type=PEM",
                "",
            ]
        )


def test_tls_with_a_certificate_that_says_who_the_broker_is(
    tmp_path: Path, stores: StoreLoop
) -> None:
    server = TlsServer(tmp_path / "zookeeper")
    server.start()
    try:
        server.wait()
        connect = f"localhost:{server.secure_port}"
        ours = certificates.client_side(certificates.client("broker"))
        with opened(stores, ZooKeeperSecurity(ours, sets_acl=True), connect) as store:
            stores.wait(store.multi((Create("/a", bytes(100_000)),)))
            for n in range(200):  # answers that share a record must not wait for each other
                stores.wait(store.multi((Create(f"/a/{n}", b"x"),)))
            found = [store.get(f"/a/{n}") for n in range(200)]
            for each in found:
                assert stores.wait(each).data == b"x"
        stranger = certificates.client_side(trusted=certificates.authority("stranger"))
        never = ZooKeeperMetadataStore(
            connect,
            clock=LoopClock(stores.loop),
            session_timeout_ms=2000,
            call_on_loop=stores.loop.call_soon_threadsafe,
            security=ZooKeeperSecurity(stranger),
        )
        outcome = never.open(2_000)
        with pytest.raises(MetadataStoreError):
            stores.wait(outcome)
        stores.wait(never.close())
    finally:
        server.stop()
