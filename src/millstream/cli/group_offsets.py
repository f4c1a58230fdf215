"""`millstream group delete-offsets`: let a group forget what it has read of a topic."""

from __future__ import annotations

from typing import Annotated

import typer

from millstream.cli.arguments import DEFAULT_BOOTSTRAP, Bootstrap, Timeout, UsageError, open_admin
from millstream.cli.failures import FAILED, CommandFailedError, complain, sentence
from millstream.cli.output import print_done
from millstream.cli.share_group import find_share_group
from millstream.client import Admin
from millstream.model.topic import TopicPartition


def delete_offsets(
    name: Annotated[str, typer.Argument(metavar="GROUP")],
    topic: Annotated[str, typer.Option("--topic", "-t", help="The topic.")],
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", "-p", help="By default all; may be repeated.", show_default=False
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Delete the offsets that a group has committed for a topic.

    Members then start where auto.offset.reset says. No member may be subscribed to the topic. For a
    share group this is done for the whole topic.
    """
    with open_admin(bootstrap, timeout) as admin:
        if find_share_group(admin, name) is not None:
            if partition:
                raise UsageError(
                    f"{name} is a share group: offsets are deleted for whole topics only"
                )
            admin.delete_share_group_offsets(name, [topic]).get_all()
            told = f"deleted the offsets of group {name} for {topic}"
            print_done(told, "deleted", name, topic)
            return
        _delete(admin, name, _committed(admin, name, topic, partition))


def _committed(
    admin: Admin, name: str, topic: str, partitions: list[int] | None
) -> list[TopicPartition]:
    committed = admin.list_group_offsets([name])[name].get()
    places = sorted(
        each
        for each in committed
        if each.topic == topic and (not partitions or each.partition in partitions)
    )
    if not places:
        asked = f"{topic} {', '.join(map(str, partitions))}" if partitions else topic
        raise CommandFailedError(f"group {name} has no committed offsets for {asked}")
    return places


def _delete(admin: Admin, name: str, places: list[TopicPartition]) -> None:
    failed = False
    for place, outcome in admin.delete_group_offsets(name, places).items():
        if outcome.error is None:
            told = f"deleted the offset of group {name} for {place}"
            print_done(told, "deleted", name, place.topic, place.partition)
        else:
            failed = True
            complain(f"{place}: {sentence(outcome.error)}")
    if failed:
        raise typer.Exit(FAILED)
