"""`millstream config`: settings of topics, brokers and groups, and where their values come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Timeout,
    UsageError,
    key_values,
    open_admin,
)
from millstream.cli.output import Row, is_for_a_person, print_json, print_rows
from millstream.cli.setting_names import refuse_unknown_settings
from millstream.client.core.admin.configs import (
    Change,
    Operation,
    Resource,
    ResourceType,
    Source,
)

app = typer.Typer(help="Settings of topics, brokers and groups.", no_args_is_help=True)

OfTopic = Annotated[str | None, typer.Option("--topic", "-t", help="The settings of a topic.")]
OfBroker = Annotated[int | None, typer.Option("--broker", help="The settings of a broker, by id.")]
OfGroup = Annotated[str | None, typer.Option("--group", help="The settings of a group.")]
OfBrokers = Annotated[
    bool, typer.Option("--broker-defaults", help="Cluster-wide defaults of all brokers.")
]


@app.command()
def describe(
    topic: OfTopic = None,
    broker: OfBroker = None,
    broker_defaults: OfBrokers = False,
    group: OfGroup = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Include settings that are at their defaults.")
    ] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Show settings, their values and sources."""
    resource = _resource(topic, broker, broker_defaults, group)
    with open_admin(bootstrap, timeout) as admin:
        settings = admin.describe_configs([resource])[resource].get()
    rows: list[Row] = [
        {
            "name": setting.name,
            "value": "(secret)" if setting.is_sensitive else setting.value,
            "source": setting.source.words,
            "read_only": setting.is_read_only,
        }
        for setting in settings
        if everything or setting.source is not Source.DEFAULT
    ]
    if as_json:
        print_json(rows)
    else:
        print_rows(rows, {"name": "setting", "value": "value", "source": "from"})


@app.command()
def alter(
    items: Annotated[list[str], typer.Argument(metavar="KEY=VALUE", help="Settings to change.")],
    topic: OfTopic = None,
    broker: OfBroker = None,
    broker_defaults: OfBrokers = False,
    group: OfGroup = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Change settings; other settings keep their values."""
    resource = _resource(topic, broker, broker_defaults, group)
    values = key_values(items, "KEY=VALUE")
    changes = [Change(name, value) for name, value in values.items()]
    with open_admin(bootstrap, timeout) as admin:
        # First what the broker refuses: its words say more about names that it knows.
        admin.incremental_alter_configs({resource: changes}, validate_only=True)[resource].get()
        refuse_unknown_settings(admin, resource, values)
        admin.incremental_alter_configs({resource: changes})[resource].get()
    _tell(resource, values)


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="KEY", help="Settings to unset.")],
    topic: OfTopic = None,
    broker: OfBroker = None,
    broker_defaults: OfBrokers = False,
    group: OfGroup = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Unset settings: they fall back to the broker's or to Kafka's defaults."""
    resource = _resource(topic, broker, broker_defaults, group)
    changes = [Change(name, None, Operation.DELETE) for name in names]
    with open_admin(bootstrap, timeout) as admin:
        refuse_unknown_settings(admin, resource, names)
        admin.incremental_alter_configs({resource: changes})[resource].get()
    _tell(resource, dict.fromkeys(names))


def _tell(resource: Resource, values: Mapping[str, str | None]) -> None:
    """Print what was set, or with None unset."""
    if is_for_a_person():
        unset = " unset" if None in values.values() else ""
        print(f"altered {resource}: {', '.join(values)}{unset}")
        return
    print_rows(
        [
            {"resource": str(resource), "setting": name, "value": value}
            for name, value in values.items()
        ],
        {"resource": "resource", "setting": "setting", "value": "value"},
    )


def _resource(
    topic: str | None, broker: int | None, broker_defaults: bool, group: str | None
) -> Resource:
    given = [topic is not None, broker is not None, broker_defaults, group is not None]
    if sum(given) != 1:
        raise UsageError("give one of --topic, --broker, --broker-defaults and --group")
    if topic is not None:
        return Resource(ResourceType.TOPIC, topic)
    if group is not None:
        return Resource(ResourceType.GROUP, group)
    return Resource(ResourceType.BROKER, "" if broker is None else str(broker))
