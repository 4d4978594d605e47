"""The final figures of stages; for a search for tiers also each stage's curve and costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedloom.records.result import RunResult, StageEnd
from fedloom.records.rows import MetricsRow
from fedloom.records.scores import ScoredPath
from fedloom.report.figures.bars import Bars, Group
from fedloom.report.figures.chart import Text
from fedloom.report.figures.curves import Chart, Line, Point
from fedloom.report.figures.tries import Tried, Tries
from fedloom.report.html import Child, Safe, joined
from fedloom.report.numbers import NAMED, amount, figure_with, percent, percents
from fedloom.report.parts import figure, grid, note, section, table
from fedloom.report.run_table import figure_columns
from fedloom.report.sections.convergence import (
    evaluations,
    evaluations_beside,
    evenly,
    known_points,
    percents_in_round,
    spoken,
    value_text,
)
from fedloom.report.story import Story

# What methods note about a round: the tier whose network it trained, and how many paths it scored.
TIER = "tier"
SCORED = "scored"


def stages(story: Story) -> Safe:
    """Show the final figures of stages; for a search for tiers also their curves and costs."""
    if not story.scores and not story.has_tiers:
        return section("stages", "Stages", ends(story))
    figures: list[Safe | None] = []
    for stage, rows in stages_of(story.rows).items():
        if is_scoring(rows):
            figures.append(tried_paths(story))
        elif len({row.stage for row in story.rows}) > 1:
            figures.append(stage_curve(story, stage, rows))
    return section(
        "stages",
        "Stages",
        grid(*figures, tuning_losses(story), sent_by_stage(story)),
        accounts(story),
        ends(story),
    )


def ends(story: Story) -> Safe | None:
    """Return a table with one row per stage; None if no stage before the last was evaluated.

    For example, FedNAS's personal mode ends `tune` with clients' supernets (w_k, α_k), which it
    then cuts.
    """
    result = story.result
    if result is None:
        return None
    cells: list[list[Child]] = []
    for end in result.stages:
        if end.part is not None:
            beside = percents(end.beside, result.columns_of_classes)
            shared = figure_with(story.metric.text(end.shared), list(end.shared_beside.values()))
            figures = [story.metric.text(end.figure), *beside, shared]
            cells.append([f"after {end.stage}", str(end.rounds), end.part, *figures])
    if not cells:
        return None
    cells.append(["the result", "", "test", *figures_of_result(story, result)])
    head = ["stage", "rounds", "data", *figure_columns(result)]
    head.append(f"shared model{story.metric.unit}")
    lines = table(head, cells, words=("stage", "data"), label="final figures of stages")
    then = "the model that it would use at that point, such as a tuned supernet before it is cut"
    about = f"Mean over clients, each with {then}."
    if any(end.shared_beside for end in result.stages) or result.shared_balanced_accuracy:
        names = " and ".join(NAMED[name] for name in result.columns_of_classes)
        about += f" In parentheses after the shared model's figure: its {names}."
    return joined(lines, note(about))


def figures_of_result(story: Story, result: RunResult) -> list[str]:
    beside = [percent(result.spread_of(name).mean) for name in result.columns_of_classes]
    shared = None
    if result.shared is not None:
        shared = result.shared.mean
    shared_figures = figure_with(
        story.metric.text(shared),
        [result.shared_balanced_accuracy, result.shared_auc],
    )
    return [story.metric.text(result.spread.mean), *beside, shared_figures]


def stages_of(rows: Sequence[MetricsRow]) -> dict[str, list[MetricsRow]]:
    """Group the rows by stage, in the order in which the stages ran."""
    stages: dict[str, list[MetricsRow]] = {}
    for row in rows:
        stages.setdefault(row.stage, []).append(row)
    return stages


def is_scoring(rows: Sequence[MetricsRow]) -> bool:
    """Whether paths are scored in this stage, and nothing is trained."""
    return any(SCORED in row.notes for row in rows)


def stage_curve(story: Story, stage: str, rows: Sequence[MetricsRow]) -> Safe | None:
    """Draw the figure over one stage's rounds."""
    metric = story.metric
    points = known_points(evaluations(rows, metric))
    if not points:
        return None
    heading = f"Stage {stage}: {metric.title}"
    drawing = Chart(
        key=f"stage-{stage}",
        title=heading,
        description=spoken(story, points),
        y_name=f"{metric.title}{metric.unit}",
        y_text=metric.text,
        lines=[Line("mean over the evaluated clients", points, 0)],
        bounds=metric.bounds,
    )
    by_name = evaluations_beside(rows, metric)
    cells: list[list[Child]] = []
    for number, value in points:
        cells.append([f"{number:g}", metric.text(value), *percents_in_round(by_name, number)])
    caption = f"Round {points[0][0]:g}."
    if len(points) > 1:
        caption = f"Rounds {points[0][0]:g} to {points[-1][0]:g}, on a scale of their own."
    if not any(TIER in row.notes for row in rows):  # there are no networks of tiers yet
        caption += " A client's figure is that of a path of its tier, drawn for the round."
    head = ["round", metric.title, *(NAMED[name] for name in by_name)]
    fallback = table(head, cells, label=heading)
    return figure(f"stage-{stage}", heading, drawing.draw(), caption, fallback)


@dataclass(frozen=True)
class ScoreFigure:
    """The figure by which scored paths are drawn: accuracy or loss."""

    name: str
    unit: str
    lower_is_better: bool
    bounds: tuple[float, float] | None
    of: Callable[[ScoredPath], float]
    text: Text

    def better(self, figure: float, other: float) -> bool:
        """Whether the first figure is better than the other."""
        if self.lower_is_better:
            return figure < other
        return figure > other


BY_ACCURACY = ScoreFigure(
    "accuracy",
    " %",
    lower_is_better=False,
    bounds=(0.0, 1.0),
    of=lambda score: score.accuracy,
    text=percent,
)
BY_LOSS = ScoreFigure(
    "loss",
    "",
    lower_is_better=True,
    bounds=None,
    of=lambda score: score.loss,
    text=value_text,
)


def tried_paths(story: Story) -> Safe | None:
    """Draw every scored path by tier, in the order in which they were scored."""
    by = BY_LOSS
    if story.metric.counts_answers:
        by = BY_ACCURACY
    scores: dict[int, list[ScoredPath]] = {}  # by tier
    for score in story.scores:
        if score.tier:  # paths without a tier were scored after the run
            scores.setdefault(score.tier, []).append(score)
    if not scores:
        return None
    groups = []
    cells: list[list[Child]] = []
    for number, tier in enumerate(sorted(scores)):
        tried = Tried(f"tier {tier}", [by.of(score) for score in scores[tier]], number)
        groups.append(tried)
        best = tried.best_so_far(by.better)[-1]
        best_path = scores[tier][tried.figures.index(best)]
        best_text = figure_with(by.text(best), [best_path.balanced_accuracy, best_path.auc])
        cells.append([tried.name, str(len(tried.figures)), best_text])
    heading = f"Stage search: {by.name} of every scored path"
    drawing = Tries(
        key="tries",
        title=heading,
        description=f"{len(story.scores)} paths.",
        groups=groups,
        better=by.better,
        x_name="scored paths of the tier",
        y_name=f"validation {by.name}{by.unit}",
        y_text=by.text,
        bounds=by.bounds,
    )
    caption = "One point per path, with the supernet's weights; a line shows the best so far."
    if any(score.balanced_accuracy is not None for score in story.scores):
        caption += " In the table, in parentheses, that path's balanced accuracy."
    fallback = table(["tier", "paths", f"best {by.name}{by.unit}"], cells, label=heading)
    return figure("tries", heading, drawing.draw(), caption, fallback)


def tuning_losses(story: Story) -> Safe | None:
    """Draw the training loss of every tier's network over the rounds that trained it."""
    lines: dict[int, list[Point]] = {}  # by tier
    for row in story.rows:
        tier = row.notes.get(TIER)
        if isinstance(tier, int) and "loss" in row.meta:
            lines.setdefault(tier, []).append((row.round, row.meta["loss"]))
    if not lines:
        return None
    drawn = []
    cells: list[list[str]] = []
    for number, tier in enumerate(sorted(lines)):
        drawn.append(Line(f"tier {tier}", lines[tier], number))
        for round_number, loss in lines[tier]:
            cells.append([f"tier {tier}", f"{round_number:g}", value_text(loss)])
    heading = "Stage tune: training loss of each tier's network"
    drawing = Chart(
        key="tuning",
        title=heading,
        description=f"{len(drawn)} tiers, which are trained in turn.",
        y_name="loss",
        y_text=lambda value: f"{value:.3g}",
        lines=drawn,
    )
    caption = "Mean over the clients of a round, which trains the network of one tier."
    fallback = table(["tier", "round", "loss"], evenly(cells), label=heading)
    return figure("tuning", heading, drawing.draw(), caption, fallback)


def sent_by_stage(story: Story) -> Safe | None:
    """Draw what every stage sent, beside what sending whole supernets would have taken."""
    groups = []
    cells: list[list[Child]] = []
    for stage in known_accounts(story):
        groups.append(Group(stage.stage, [stage.down, stage.full_down, stage.up]))
        down = f"{amount(stage.down)}B"
        full_down = f"{amount(stage.full_down)}B"
        up = f"{amount(stage.up)}B"
        cells.append([stage.stage, down, full_down, up, saved_text(stage)])
    if not groups:
        return None
    heading = "Bytes of each stage, compared with sending the whole supernet"
    meanings = [
        "down to clients",
        "down, if every order had carried the whole supernet",
        "up to the server",
    ]
    drawing = Bars(
        key="stage-bytes",
        title=heading,
        description=f"{len(groups)} stages.",
        groups=groups,
        meanings=meanings,
        text=lambda value: f"{amount(value)}B",
    )
    caption = "Bytes of training and of scoring, all rounds of the stage together."
    head = ["stage", "down", "whole supernet", "up", "saved"]
    fallback = table(head, cells, label=heading)
    return figure("stage-bytes", heading, drawing.draw(), caption, fallback)


def known_accounts(story: Story) -> list[StageEnd]:
    """Return the stages whose bytes are known; earlier versions did not store them."""
    if story.result is None:
        return []
    return [stage for stage in story.result.stages if stage.down is not None]


def saved_text(stage: StageEnd) -> str:
    """Write how much less was sent to clients than whole supernets would have been."""
    if not stage.full_down or stage.down is None:
        return "–"
    return f"{100 * (1 - stage.down / stage.full_down):.0f} %"


def accounts(story: Story) -> Safe | None:
    """Return a table of the rounds, bytes and MACs of every stage."""
    cells: list[list[Child]] = []
    for stage in known_accounts(story):
        share = "–"
        if stage.share is not None:
            share = f"{100 * stage.share:.0f} %"
        sent = [f"{amount(stage.down)}B", f"{amount(stage.up)}B"]
        computed = [amount(stage.macs), amount(stage.server_macs)]
        cells.append([stage.stage, str(stage.rounds), share, *sent, *computed])
    if not cells:
        return None
    head = ["stage", "rounds", "of the budget", "down", "up", "MACs", "MACs of the server"]
    return table(head, cells, label="cost of each stage")
