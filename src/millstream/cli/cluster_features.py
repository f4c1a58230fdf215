"""`millstream cluster features`: behaviour that a cluster's brokers switch on together."""

from __future__ import annotations

from typing import Annotated

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Timeout,
    key_values,
    open_admin,
)
from millstream.cli.failures import FAILED, complain, sentence
from millstream.cli.output import Row, print_done, print_json, print_rows
from millstream.client.core.admin.cluster import UpgradeType

app = typer.Typer(
    help="Feature levels of the cluster; without a command: describe.",
    invoke_without_command=True,
)

Levels = Annotated[
    list[str],
    typer.Argument(
        metavar="FEATURE=LEVEL", help="For example transaction.version=2; 0 switches it off."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only check whether it is permitted.")]


@app.callback()
def features(
    context: typer.Context,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Feature levels of the cluster; without a command: describe."""
    if context.invoked_subcommand is None:
        describe(as_json, bootstrap, timeout)


@app.command()
def describe(
    as_json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout: Timeout = None
) -> None:
    """Show the current level of each feature, and the levels that the broker supports."""
    with open_admin(bootstrap, timeout) as admin:
        features = admin.describe_features()
    rows: list[Row] = []
    for name in sorted({*features.supported, *features.finalized}):
        supported = features.supported.get(name)
        level = features.finalized.get(name)
        rows.append(
            {
                "feature": name,
                "level": 0 if level is None else level.last,
                "lowest": None if supported is None else supported.first,
                "highest": None if supported is None else supported.last,
                "epoch": features.finalized_epoch,
            }
        )
    if as_json:
        print_json(rows)
    else:
        print_rows(
            rows,
            {
                "feature": "feature",
                "level": "level",
                "lowest": "lowest",
                "highest": "highest",
                "epoch": "epoch",
            },
        )


@app.command()
def upgrade(
    levels: Levels,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Raise the levels of features, once every broker supports them."""
    _update(levels, UpgradeType.UPGRADE, dry_run, bootstrap, timeout)


@app.command()
def downgrade(
    levels: Levels,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Even if data of the higher level is lost.")
    ] = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Lower the levels of features."""
    kind = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE
    _update(levels, kind, dry_run, bootstrap, timeout)


def _update(
    levels: list[str], kind: UpgradeType, dry_run: bool, bootstrap: str, timeout: str | None
) -> None:
    wanted: dict[str, int] = {}
    for name, level in key_values(levels, "FEATURE=LEVEL").items():
        if not level.isdecimal():
            raise typer.BadParameter(f"{level!r} is not a level", param_hint="FEATURE=LEVEL")
        wanted[name] = int(level)
    with open_admin(bootstrap, timeout) as admin:
        outcomes = admin.update_features(wanted, upgrade_type=kind, validate_only=dry_run)
    done = "may be set to" if dry_run else "is at"
    for name, outcome in sorted(outcomes.items()):
        if outcome.error is None:
            print_done(f"{name} {done} level {wanted[name]}", name, wanted[name])
        else:
            complain(f"{name}: {sentence(outcome.error)}")
    if outcomes.errors:
        raise typer.Exit(FAILED)
