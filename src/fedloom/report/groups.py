"""What a page that compares methods shows: each method's runs, and its row of figures."""

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
    """One method and its runs: one for each seed that has begun."""

    name: str
    stories: list[Story]


@dataclass(frozen=True)
class Versus:
    """Several methods, or several runs, on one page."""

    path: Path | None  # the comparison's folder; None: the runs do not belong to one comparison
    standing: Standing
    groups: list[Group]
    # One row per method, as in a comparison's result.json; empty until the comparison ends.
    rows: list[MethodRow]
    command: str  # what reproduces this comparison
    seeds: int
    alike: bool = True  # whether all runs used the same splits
    damage: str | None = None  # what is wrong with the comparison's own result.json
    contest: Contest | None = None  # set for `fedloom auto` only
    auto_result: AutoResult | None = None  # the result of `fedloom auto`; None: it has not ended

    @property
    def stories(self) -> list[Story]:
        stories = []
        for group in self.groups:
            stories += group.stories
        return stories

    @property
    def all_damage(self) -> list[str]:
        """Sentences on damaged files: the comparison's own file first, then its runs' files."""
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
