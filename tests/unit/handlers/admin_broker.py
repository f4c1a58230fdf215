"""A broker without a network: dispatcher, controller, SQLite and logs are real; a clock by hand.

Requests and answers go through their bytes, as they do on the wire.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from tests.unit.runtime.coordinator_site import HandClock, HeldOffload

from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.config.listeners import SASL_PROTOCOLS
from millstream.controller.topic_changes import NewTopic
from millstream.model.broker import BrokerId, BrokerNode, Endpoint
from millstream.model.deferred import Deferred
from millstream.model.errors import StorageError
from millstream.net.peer import Peer, Session
from millstream.protocol.codec import decode_response, encode_request
from millstream.protocol.message import Request, Response
from millstream.protocol.outgoing import IN_MEMORY, Outgoing
from millstream.records.batch import Batch
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.runtime.authentication.listener_authentication import ListenerAuthentication
from millstream.runtime.controlling.controller_state import ControllerState
from millstream.runtime.controlling.standalone_controller import StandaloneController
from millstream.runtime.logs.replica_mover import ReplicaMover
from millstream.runtime.metadata.broker_metadata import BrokerMetadata
from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage
from millstream.runtime.producer_ids import ProducerIds
from millstream.runtime.replicas.fetch_sessions import FetchSessions
from millstream.runtime.replicas.partitions import Partitions
from millstream.runtime.replicas.transaction_verification import (
    OwnCoordinator,
    RequestSender,
    TransactionVerifier,
)
from millstream.runtime.services import Services
from millstream.server.broker_requests import BrokerRequests
from millstream.server.dispatch import Dispatcher
from millstream.sqlite.metadata_store import SqliteMetadataStore
from millstream.storage.environment import LogEnvironment
from millstream.storage.log_manager import LogManager

A = TypeVar("A", bound=Response)

NODE = BrokerNode(
    BrokerId(1),
    (Endpoint("PLAINTEXT", "broker.example", 9092), Endpoint("OTHER", "inner", 9093)),
    rack="r1",
)


class AdminBroker:
    """One broker over a directory. ``environment`` is what its logs use in place of it;
    ``ask_coordinator`` takes the requests that verify transactions, in place of its own handlers;
    ``own_coordinator`` is asked before that.
    """

    def __init__(
        self,
        directory: Path,
        settings: dict[str, str] | None = None,
        environment: LogEnvironment | None = None,
        more_directories: Sequence[Path] = (),
        ask_coordinator: RequestSender | None = None,
        own_coordinator: OwnCoordinator | None = None,
    ) -> None:
        self.directory = directory
        self.clock = HandClock()
        self.config = DynamicConfig(BrokerConfig(settings))
        self.metadata = MetadataCache("")
        self.failures: list[StorageError] = []
        self.offload = HeldOffload()
        self.log_manager = LogManager(
            [str(directory), *map(str, more_directories)],
            environment or LogEnvironment(),
            broker_id=1,
        )
        self.log_manager.lock()
        self.store = SqliteMetadataStore(self.offload, directory)
        self.requests = BrokerRequests(BrokerId(1), self.clock)
        verifier = TransactionVerifier(
            self.config,
            self.metadata,
            self.clock,
            ask_coordinator or self.requests.send,
            own_coordinator,
        )
        self.partitions = Partitions(
            BrokerId(1),
            clock=self.clock,
            offload=self.offload,
            log_manager=self.log_manager,
            metadata=self.metadata,
            on_directory_failed=lambda _: None,
            new_verifier=lambda: verifier,
        )
        counter = itertools.count(1)
        self.controller_state = ControllerState(
            self.config, lambda size: next(counter).to_bytes(size, "little")
        )
        standalone = StandaloneController(
            self.controller_state,
            self.store,
            self.clock,
            BrokerMetadata(BrokerId(1), self.metadata, self.config, listener=self.partitions),
            on_store_failed=self.failures.append,
        )
        self.controller = standalone.controller
        standalone.load().result()
        self.log_manager.start(
            config_of=lambda _, __: self.config.current.topic_defaults,
            now_ms=self.clock.now_ms(),
        )
        standalone.start(
            NODE,
            found={},
            clean_shutdown=True,
            settle=lambda _: None,
            cluster_id="the-cluster",
        ).result()
        unused = cast("Any", None)
        mover = ReplicaMover(
            self.clock,
            self.offload,
            self.config,
            log_manager=self.log_manager,
            partitions=self.partitions,
        )
        self.services = Services(
            node=NODE,
            clock=self.clock,
            offload=self.offload,
            config=self.config,
            metadata=self.metadata,
            log_manager=self.log_manager,
            partitions=self.partitions,
            controller=self.controller,
            ensure_topic=self.controller.topics.ensure_topic,
            cluster=None,
            coordinators=unused,
            send_request=self.requests.send,
            random_bytes=lambda size: next(counter).to_bytes(size, "little"),
            group_runtime=unused,
            share_runtime=unused,
            new_share_persister=unused,
            transaction_runtime=unused,
            share_partitions=unused,
            fetch_sessions=FetchSessions(
                slots=10, evict_after_ms=120_000, random_id=lambda: next(counter)
            ),
            producer_ids=ProducerIds(self.store, BrokerId(1), self.failures.append),
            new_replica_mover=lambda: mover,
        )
        self.requests.begin(self.services)
        self.authentication: ListenerAuthentication | None = None
        if any(each.protocol in SASL_PROTOCOLS for each in self.config.current.listening()):
            self.authentication = ListenerAuthentication(
                self.config,
                entities=self.metadata.entities,
                cluster_id="the-cluster",
                random_bytes=lambda size: next(counter).to_bytes(size, "little"),
                clock=self.clock,
                offload=self.offload,
                tokens=self.services.delegation_tokens,
            )
        self.dispatcher = Dispatcher(self.services, self.authentication)

    def close(self) -> None:
        self.partitions.stop()
        self.store.close().result()
        self.log_manager.close()

    def create(self, name: str, partitions: int = 1, **configs: str) -> TopicImage:
        """Make a topic; settings are given with underscores for dots."""
        texts = {key.replace("_", "."): text for key, text in configs.items()}
        wanted = NewTopic(name, partitions, configs=texts)
        (image,) = self.controller.topics.create_topics([wanted]).result()
        assert isinstance(image, TopicImage), image
        return image

    def fill(self, topic: str, *values: bytes, index: int = 0, **producer: int) -> None:
        """Append one batch and let it reach the disk."""
        builder = BatchBuilder(BatchOptions(**producer))
        for value in values:
            builder.append(self.clock.now_ms(), None, value)
        partition = self.partitions.get(topic, index)
        partition.append(Batch(memoryview(bytearray(builder.build()))), self.clock.now_ms())
        self.clock.settle()

    def connect(self, listener: str = "PLAINTEXT") -> Session:
        """Open a connection; ``closed()`` ends it."""
        return self.dispatcher.open_session(Peer(1, listener, "10.0.0.7", 4242))

    def start(
        self,
        request: Request,
        version: int,
        *,
        listener: str = "PLAINTEXT",
        session: Session | None = None,
    ) -> Deferred[Response]:
        """Send a request in one version; the answer may come later."""
        frame = encode_request(request, version, 7, "tester").join()
        served = (session or self.connect(listener)).serve(memoryview(bytearray(frame))[4:])
        answer: Deferred[Response] = Deferred()

        def settle(ready: Deferred[Outgoing | None]) -> None:
            outgoing = ready.result()
            assert outgoing is not None
            correlation_id, response = decode_response(
                request.API_KEY, version, joined(outgoing)[4:]
            )
            assert correlation_id == 7
            answer.complete(response)

        later = served if isinstance(served, Deferred) else Deferred.of(served)
        cast("Deferred[Outgoing | None]", later).on_done(settle)
        self.clock.settle()
        return answer

    def call(
        self,
        request: Request,
        version: int,
        response_type: type[A],
        *,
        listener: str = "PLAINTEXT",
    ) -> A:
        """Return the answer to a request in one version, which must come at once."""
        response = self.start(request, version, listener=listener).result()
        assert isinstance(response, response_type)
        return response

    def reopen_store(self) -> None:
        """Open the store again that a test closed, so that this broker can be closed."""
        self.store = SqliteMetadataStore(self.offload, self.directory)


def joined(outgoing: Outgoing) -> bytes:
    """Return what goes over the wire, slices of files included."""
    return b"".join(
        bytes(piece) if isinstance(piece, IN_MEMORY) else piece.read() for piece in outgoing.pieces
    )
