"""Methods beside each other, as values.

The runs of each, and a row of figures for each once all are finished.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedloom.metrics.metric import METRICS, Metric
from fedloom.records.auto import AutoResult
from fedloom.records.comparison import MethodRow
from fedloom.records.plan import Contest
from fedloom.report.story import Standing, Story


@dataclass(frozen=True)
class Group:
    """One method, with a run for each seed that has begun."""

    name: str
    stories: list[Story]


@dataclass(frozen=True)
class Versus:
    path: Path | None
    standing: Standing
    groups: list[Group]
    rows: list[MethodRow]  # one a method, as in a comparison's result.json; none before its end
    command: str
    seeds: int
    alike: bool = True  # whether all ran on the same splits
    damage: str | None = None  # what is wrong with the comparison's own result.json
    contest: Contest | None = None  # of `fedloom auto`
    found: AutoResult | None = None  # what it came to; None: it is not finished

    @property
    def stories(self) -> list[Story]:
        stories = []
        for group in self.groups:
            stories += group.stories
        return stories

    @property
    def all_damage(self) -> list[str]:
        """In sentences: of the comparison's own file, and of its runs' files."""
        sentences = []
        if self.damage is not None:
            sentences.append(self.damage)
        for story in self.stories:
            sentences += [f"{story.name}: {damage.sentence}" for damage in story.damage]
        return sentences

    @property
    def metric(self) -> Metric:
        if self.rows:
            return self.rows[0].judged_by
        if self.stories:
            return self.stories[0].metric
        return METRICS["accuracy"]
