"""Which clients gain from which method: heat maps of the first seed's figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedloom.metrics.metric import Metric
from fedloom.report.figures.heat import Heat
from fedloom.report.groups import Versus
from fedloom.report.html import Child, Safe
from fedloom.report.numbers import NAMED, percent
from fedloom.report.parts import figure, grid, section, table
from fedloom.report.sections.method_curves import IN_CURVES
from fedloom.report.sections.search import (
    PALE,
    Matrix,
    shades,
    shades_above_chance,
    shades_above_half,
)
from fedloom.report.story import Story

MOST_CLIENTS = 40  # that are shown


def clients(versus: Versus) -> Safe:
    """Show which clients gain from which method, by the first seed's runs.

    The section is hidden if runs have different splits.
    """
    metric = versus.metric
    methods = []
    stories = []
    for group in versus.groups:
        if group.stories and group.stories[0].result is not None:
            methods.append(group.name)
            stories.append(group.stories[0])
    if len(stories) < 2 or not versus.alike:
        return section("clients", "Clients")
    figures = by_metric(stories, metric)
    shares = shades(figures.rows, metric.lower_is_better)
    maps = [heat_map(figures, methods, stories, shares, "stronger is better")]
    about_shades = f"{PALE}, stronger is better"
    balanced = by_figure_beside(stories, "balanced_accuracy")
    if balanced.is_known:
        shares = shades_above_chance(balanced.rows, stories[0].result)
        maps.append(heat_map(balanced, methods, stories, shares, about_shades))
    auc = by_figure_beside(stories, "auc")
    if auc.is_known:
        shares = shades_above_half(auc.rows)
        maps.append(heat_map(auc, methods, stories, shares, about_shades))
    return section("clients", "Clients", grid(*maps))


@dataclass(frozen=True)
class ByClient:
    """A figure of each client under each method."""

    key: str
    name: str
    unit: str
    figures: list[dict[int, float | None]]  # for each method, by client
    text: Callable[[float | None], str]

    @property
    def is_known(self) -> bool:
        figures: list[float | None] = []
        for of_method in self.figures:
            figures += of_method.values()
        return any(figure is not None for figure in figures)

    @property
    def clients(self) -> list[int]:
        """The clients that are shown."""
        return sorted(self.figures[0])[:MOST_CLIENTS]

    @property
    def rows(self) -> Matrix:
        """The figures with one row per client and one column per method."""
        rows = []
        for client in self.clients:
            rows.append([of_method.get(client) for of_method in self.figures])
        return rows


def by_metric(stories: Sequence[Story], metric: Metric) -> ByClient:
    figures = []
    for story in stories:
        figures.append({client.client: client.figure for client in story.clients})
    return ByClient("by-client", metric.title, metric.unit, figures, metric.text)


def by_figure_beside(stories: Sequence[Story], name: str) -> ByClient:
    """Return balanced accuracy or AUC by client; None where a run's tables do not show it."""
    figures = []
    for story in stories:
        of_method: dict[int, float | None] = {}
        for client in story.clients:
            of_method[client.client] = None
            if story.result is not None and name in story.result.columns_of_classes:
                of_method[client.client] = client.beside.get(name)
        figures.append(of_method)
    key = f"{IN_CURVES[name].lower()}-by-client"
    return ByClient(key, NAMED[name], " %", figures, percent)


def heat_map(
    by_client: ByClient,
    methods: Sequence[str],
    stories: Sequence[Story],
    shares: Matrix,
    about_shades: str,
) -> Safe:
    """Draw the first seed's figures with one row per client and one column per method."""
    names = [stories[0].client_name(client) for client in by_client.clients]
    texts = []
    cells: list[list[Child]] = []
    for name, row in zip(names, by_client.rows, strict=True):
        row_texts = [by_client.text(value) for value in row]
        texts.append(row_texts)
        cells.append([name, *row_texts])
    heading = f"{capital(by_client.name)} of each client under each method"
    drawing = Heat(
        key=by_client.key,
        title=heading,
        description="One row per client, one column per method.",
        rows=names,
        columns=methods,
        shares=shares,
        texts=texts,
        row_name="client",
        column_name="method",
    )
    first = stories[0].result
    assert first is not None
    about_figures = f"Seed {first.seed}, {by_client.name}{by_client.unit}"
    about = f"{about_figures}, on each client's own test data; {about_shades}."
    if len(names) < len(by_client.figures[0]):
        about += f" The first {len(names)} of {len(by_client.figures[0]):,} clients."
    fallback = table(["client", *methods], cells, label=heading)
    return figure(by_client.key, heading, drawing.draw(), about, fallback)


def capital(name: str) -> str:
    """Capitalise a name for the beginning of a sentence."""
    return name[0].upper() + name[1:]
