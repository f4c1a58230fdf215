"""The two sets of scenarios: each has a broker of its own, with settings of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

from tests.interop.differential.scenario import Scenario, all_scenarios
from tests.interop.differential.security import open_scenarios, scenarios
from tests.interop.differential.security.settings import OPEN, SETTINGS


@dataclass(frozen=True)
class ScenarioSet:
    """Scenarios, what the broker that they are for is set up with, and where its answers lie."""

    name: str
    package: ModuleType
    settings: Mapping[str, str]
    answers: Path

    def scenarios(self) -> list[Scenario]:
        """Return all of them."""
        return all_scenarios(self.package)

    def apis(self) -> list[str]:
        """Return what they are about, in order."""
        return list(dict.fromkeys(each.api for each in self.scenarios()))


_HERE: Final = Path(__file__).parent
SETS: Final = {
    each.name: each
    for each in (
        ScenarioSet("guarded", scenarios, SETTINGS, _HERE / "answers"),
        ScenarioSet("open", open_scenarios, OPEN, _HERE / "open_answers"),
    )
}
