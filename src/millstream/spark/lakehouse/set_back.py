"""Refuses to load into a table that was set back to an older state, which its ledger was not."""

from __future__ import annotations

import logging

from millstream.spark.lakehouse.table import Table
from millstream.spark.plan import DataLossError

log = logging.getLogger(__name__)


def check_not_set_back(table: Table, app_id: str, *, fail_on_data_loss: bool) -> None:
    """Raise DataLossError, unless it is allowed, if a table is without the last files of a load."""
    if not table.was_set_back(app_id):
        return
    text = (
        f"{table.name} was set back to a state before the last batch of {app_id}, whose offsets "
        "are in its ledger: the records in between are in no file of it"
    )
    if fail_on_data_loss:
        raise DataLossError(
            f"{text} (option failOnDataLoss=false continues behind them; loading into another "
            "table reads all)"
        )
    log.warning("%s", text)
