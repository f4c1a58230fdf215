"""Stories of consumer groups (``groups/*.txt``) against the pure coordinator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.scenarios import transcript
from tests.unit.coordinator.scene import GROUP, Scene, error_of, subscription

from millstream.coordinator.group.record_types import decode_record
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode
from millstream.protocol.messages.coordinator_records import (
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from millstream.protocol.messages.join_group import JoinGroupResponse
from millstream.protocol.messages.sync_group import SyncGroupResponse

STORIES = sorted((Path(__file__).parent / "groups").glob("*.txt"))


class Teller:
    """Carries out the commands of a story, in which a client is a name."""

    def __init__(self) -> None:
        self.scene = Scene()
        self.member_ids: dict[str, str] = {}
        self.generation_ids: dict[str, int] = {}
        self.instances: dict[str, str | None] = {}
        self.former_ids: dict[str, str] = {}
        self.said: list[str] = []
        self.shown_records = 0

    def run(self, line: str) -> list[str]:
        command, *words = line.split()
        self.said = []
        commands: dict[str, Callable[..., None]] = {
            "join": self.join,
            "sync": self.sync,
            "heartbeat": self.heartbeat,
            "leave": self.leave,
            "commit": self.commit,
            "wait": self.wait,
            "restart": self.restart,
            "group": self.group,
            "log": self.log,
            "forget": self.forget,
            "impostor": self.impostor,
        }
        commands[command](*words)
        return self.said

    # Commands

    def join(self, name: str, *options: str) -> None:
        """join NAME [version=N] [instance=I] [PROTOCOL=TOPIC,TOPIC ...]"""
        settings = dict(option.split("=") for option in options)
        version = int(settings.pop("version", "9"))
        self.instances[name] = settings.pop("instance", self.instances.get(name))
        protocols = {
            protocol: subscription(*topics.split(",")) for protocol, topics in settings.items()
        }
        reply = self.scene.join(
            self.member_ids.get(name, ""),
            version=version,
            instance_id=self.instances[name],
            client_id=name,
            protocols=protocols or None,
        )
        reply.on_done(lambda answer: self._joined(name, answer))
        if not reply.done:
            self.said.append(f"{name}: waits")

    def _joined(self, name: str, reply: Deferred[JoinGroupResponse]) -> None:
        answer = reply.result()
        error = ErrorCode.of(answer.error_code)
        if error in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.NONE):
            self.member_ids[name] = answer.member_id
        if error is not ErrorCode.NONE:
            self.said.append(f"{name}: {error.name}, id {answer.member_id or 'none'}")
            return
        self.generation_ids[name] = answer.generation_id
        text = f"{name}: generation {answer.generation_id}, {answer.protocol_name}"
        text += f", id {answer.member_id}"
        if answer.leader != answer.member_id:
            text += f", follows {answer.leader}"
        elif answer.skip_assignment:
            text += ", leads and skips the assignment"
        else:
            text += ", leads " + " ".join(member.member_id for member in answer.members)
        self.said.append(text)

    def sync(self, name: str, *parts: str) -> None:
        """sync NAME [NAME=PARTITIONS ...]"""
        assignments = {
            self.member_ids[member]: value.encode()
            for member, value in (part.split("=") for part in parts)
        }

        def say(reply: Deferred[SyncGroupResponse]) -> None:
            answer = reply.result()
            error = ErrorCode.of(answer.error_code)
            got = answer.assignment.decode() or "nothing"
            self.said.append(f"{name}: {got if error is ErrorCode.NONE else error.name}")

        def ask() -> int:
            reply = self.scene.sync(
                self.member_ids[name],
                assignments,
                generation_id=self.generation_ids[name],
                instance_id=self.instances[name],
            )
            reply.on_done(say)
            if not reply.done:
                self.said.append(f"{name}: waits")
            return 0

        self._say_error(name, error_of(ask))

    def heartbeat(self, *names: str) -> None:
        """heartbeat NAME ..."""
        for name in names:
            code = self.scene.heartbeat_error(
                self.member_ids[name], self.generation_ids[name], self.instances[name]
            )
            self.said.append(f"{name}: {ErrorCode.of(code).name}")

    def leave(self, *names: str) -> None:
        """leave NAME ..."""
        response = self.scene.leave(
            *((self.member_ids.pop(name), self.instances[name]) for name in names)
        )
        for name, answer in zip(names, response.members, strict=True):
            self.said.append(f"{name}: {ErrorCode.of(answer.error_code).name}")

    def commit(self, name: str, committed: str) -> None:
        """commit NAME TOPIC-PARTITION=OFFSET"""
        partition, _, offset = committed.partition("=")
        topic, _, index = partition.rpartition("-")
        code = self.scene.commit_error(
            {(topic, int(index)): int(offset)},
            member_id=self.member_ids[name],
            generation_id=self.generation_ids[name],
            instance_id=self.instances[name],
        )
        self.said.append(f"{name}: {ErrorCode.of(code).name}")

    def forget(self, name: str) -> None:
        """forget NAME: the client restarts and does not know its member id"""
        self.former_ids[name] = self.member_ids.pop(name)

    def impostor(self, name: str, other: str) -> None:
        """impostor NAME OTHER: another client that takes itself for NAME as it was before"""
        self.member_ids[other] = self.former_ids[name]
        self.generation_ids[other] = self.generation_ids[name]
        self.instances[other] = self.instances[name]

    def wait(self, milliseconds: str) -> None:
        """wait MILLISECONDS"""
        self.scene.advance(int(milliseconds))

    def restart(self) -> None:
        """restart: the broker loses its memory and loads the log"""
        self.scene = self.scene.loaded()

    def group(self) -> None:
        """group: show what an administrator sees"""
        described = self.scene.coordinator.describe_group(GROUP, 6).response
        assert described is not None
        self.said.append(f"{described.group_state} {described.protocol_data}".strip())
        self.said += [f"  {member.member_id}" for member in described.members]

    def log(self) -> None:
        """log: show the records that are new since the last look"""
        for key, value in self.scene.log[self.shown_records :]:
            record = decode_record(key, value)
            assert record is not None
            match record.key, record.value:
                case OffsetCommitKey() as key, OffsetCommitValue() as offset:
                    self.said.append(f"offset {key.topic}-{key.partition}={offset.offset}")
                case _, GroupMetadataValue() as group:
                    members = " ".join(
                        f"{m.member_id}={m.assignment.decode()}" for m in group.members
                    )
                    self.said.append(f"group generation {group.generation} {members}".strip())
                case _:
                    self.said.append("tombstone")
        self.shown_records = len(self.scene.log)

    def _say_error(self, name: str, code: int) -> None:
        if code:
            self.said.append(f"{name}: {ErrorCode.of(code).name}")


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_story(story: Path) -> None:
    transcript.check(story, Teller().run)
