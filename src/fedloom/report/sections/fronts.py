"""What a search for tiers of devices scored: loss against MACs, in one figure per tier.

A heat map shows how often each operation was trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedloom.records.result import RunResult, TierResult
from fedloom.records.scores import ScoredPath
from fedloom.report.figures.heat import Heat
from fedloom.report.figures.pareto import Pareto, Place
from fedloom.report.html import Child, Safe
from fedloom.report.numbers import amount, counted
from fedloom.report.parts import figure, note, table
from fedloom.report.story import Story
from fedloom.report.tier_tables import limit_text

SCORED_BY = {
    "central": "on the server's own samples",
    "federated": "by clients, on samples that they hold out",
    "pooled": "on clients' samples taken together, which only a simulation can do",
}
MOST_LISTED = 200  # paths in a table
MOST_OPERATIONS = 3  # that the caption names


def scoring(story: Story) -> Safe | None:
    """Say how many paths were scored, by whom, and whether clients and server agree."""
    if story.result is None or story.result.search is None:
        return None
    search = story.result.search
    if not search.models:
        return None
    generations = counted(search.generations, "generation")
    scored_by = SCORED_BY.get(search.score, search.score)
    sentences = [f"{search.models:,} paths in {generations}, scored {scored_by}."]
    if search.tau is not None:
        clients = "clients"
        if search.tau_clients is not None:
            clients = f"{search.tau_clients} clients"
        agreement = f"Kendall's τ {search.tau:.2f}"
        sentences.append(f"In the last pool {clients} and the server agree with {agreement}.")
    if search.supernet_bytes:
        largest = amount(max(search.supernet_bytes))
        part = "the smallest part of the supernet that contains a generation's new paths"
        sentences.append(f"At most {largest}B: {part}.")
    return note(" ".join(sentences))


def fronts(story: Story) -> list[Safe]:
    """Return one figure per tier: with the chosen path, or what has been scored so far."""
    if story.result is None:
        return unfinished_fronts(story.scores)
    figures = []
    for tier in story.result.tiers:
        drawn = front(tier, story.scores)
        if drawn is not None:
            figures.append(drawn)
    return figures


def front(tier: TierResult, scores: Sequence[ScoredPath]) -> Safe | None:
    scored = [score for score in scores if fits_tier(tier, score)]
    on_front = [Place(point.macs, point.loss) for point in tier.front]
    chosen = None
    if tier.validation is not None:
        chosen = Place(tier.macs, tier.validation.loss)
    control = None
    if tier.control.validation is not None and tier.control.macs is not None:
        control = Place(tier.control.macs, tier.control.validation.loss)
    if not scored and not on_front and chosen is None:
        return None
    heading = f"Tier {tier.tier}: what was scored"
    limit = tier.limit.get("macs")
    drawing = pareto(tier.tier, heading, scored, on_front, chosen, control, limit)
    sentences = [f"At most {limit_text(tier.limit)}."]
    if scored:
        sentences.append(f"{len(scored):,} scored paths fit this limit, controls among them.")
    sentences.append("All with the supernet's weights, on validation samples.")
    if chosen is not None and control is None:
        sentences.append(f"No control: {tier.control.reason or 'none was scored'}.")
    caption = " ".join(sentences)
    return figure(f"front-{tier.tier}", heading, drawing.draw(), caption, front_table(tier))


def fits_tier(tier: TierResult, score: ScoredPath) -> bool:
    """Whether the path was scored for this tier or a smaller one, or is known to fit its limit."""
    if 0 < score.tier <= tier.tier:
        return True
    costs = {"params": score.params, "macs": score.macs}
    for unit, most in tier.limit.items():
        if unit not in costs or costs[unit] > most:
            return False
    return bool(tier.limit)


def unfinished_fronts(scores: Sequence[ScoredPath]) -> list[Safe]:
    """Return the figures of a running search, in which nothing is chosen yet."""
    figures = []
    for number in sorted({score.tier for score in scores}):
        scored = [score for score in scores if score.tier == number]
        heading = f"Tier {number}: scored so far"
        drawing = pareto(number, heading, scored, best_places(scored), None, None, None)
        caption = f"{len(scored):,} paths, with the supernet's weights, on validation samples."
        fallback = scores_table(scored, heading)
        figures.append(figure(f"front-{number}", heading, drawing.draw(), caption, fallback))
    return figures


def pareto(
    number: int,
    heading: str,
    scored: Sequence[ScoredPath],
    on_front: Sequence[Place],
    chosen: Place | None,
    control: Place | None,
    limit: float | None,
) -> Pareto:
    best = min([place.loss for place in on_front], default=None)
    description = "Nothing was scored."
    if best is not None:
        description = f"{len(on_front)} paths on the front; the lowest loss is {best:.3g}."
    return Pareto(
        key=f"front-{number}",
        title=heading,
        description=description,
        scored=[Place(score.macs, score.loss) for score in scored],
        front=on_front,
        chosen=chosen,
        control=control,
        limit=limit,
        x_name="MACs per sample",
        y_name="validation loss",
        x_text=amount,
        y_text=lambda value: f"{value:.3g}",
    )


def best_places(scored: Sequence[ScoredPath]) -> list[Place]:
    """Return the Pareto front: the paths than which no cheaper one has as low a loss."""
    best: list[Place] = []
    for score in sorted(scored, key=lambda score: (score.macs, score.loss)):
        if not best or score.loss < best[-1].loss:
            best.append(Place(score.macs, score.loss))
    return best


def front_table(tier: TierResult) -> Safe:
    rows: list[list[Child]] = []
    if tier.validation is not None:
        rows.append(["chosen", amount(tier.macs), f"{tier.validation.loss:.4g}", joined(tier.path)])
    control = tier.control
    if control.validation is not None:
        loss = f"{control.validation.loss:.4g}"
        rows.append(["control", amount(control.macs), loss, joined(control.path or [])])
    for point in tier.front[:MOST_LISTED]:
        rows.append(["front", amount(point.macs), f"{point.loss:.4g}", joined(point.path)])
    head = ["path", "MACs", "validation loss", "operations"]
    return table(head, rows, words=("operations",), label=f"front of tier {tier.tier}")


def scores_table(scored: Sequence[ScoredPath], label: str) -> Safe:
    best_first = sorted(scored, key=lambda score: score.loss)
    rows: list[list[Child]] = []
    for number, score in enumerate(best_first[:MOST_LISTED], start=1):
        rows.append([str(number), amount(score.macs), f"{score.loss:.4g}", joined(score.path)])
    head = ["by loss", "MACs", "validation loss", "operations"]
    return table(head, rows, words=("operations",), label=label)


def joined(path: Sequence[str]) -> str:
    return ", ".join(path)


def operations(story: Story) -> Safe | None:
    """Draw layers × operations: the samples each processed while the supernet was trained."""
    result = story.result
    if result is None or not result.ops:
        return None
    return operations_figure(result)


def operations_figure(result: RunResult) -> Safe:
    names = operation_names(result.ops)
    totals = [sum(layer.values()) for layer in result.ops]
    largest = largest_share(result.ops)
    shares: list[list[float | None]] = []
    texts = []
    cells: list[list[Child]] = []
    layer_names = [f"layer {number}" for number, _ in enumerate(result.ops, start=1)]
    for layer_name, layer, total in zip(layer_names, result.ops, totals, strict=True):
        layer_shares = []
        layer_texts = []
        layer_cells: list[Child] = [layer_name]
        for name in names:
            layer_shares.append(shade_of(layer, name, total * largest))
            layer_texts.append(percent_text(layer, name, total))
            layer_cells.append(count_text(layer, name))
        shares.append(layer_shares)
        texts.append(layer_texts)
        cells.append(layer_cells)
    heading = "How often each operation was trained"
    most = most_used(result.ops)
    drawing = Heat(
        key="operations",
        title=heading,
        description=f"{len(result.ops)} layers. {most}",
        rows=layer_names,
        columns=names,
        shares=shares,
        texts=texts,
        row_name="layer",
        column_name="operation",
        framed=lambda row, column: is_chosen(result, row, names[column]),
    )
    caption = (
        "Of the samples that went through a layer while the supernet trained, the share of each "
        f"operation in percent; the strongest shade is {100 * largest:.0f} %. {most} "
        "Framed: some tier's network has it."
    )
    fallback = table(["layer", *names], cells, label=heading)
    return figure("operations", heading, drawing.draw(), caption, fallback)


def count_text(layer: Mapping[str, int], name: str) -> str:
    if name not in layer:
        return "–"
    return f"{layer[name]:,}"


def operation_names(layers: Sequence[Mapping[str, int]]) -> list[str]:
    """Return the names of all layers' operations, in the order in which they are first met."""
    names: dict[str, None] = {}
    for layer in layers:
        names.update(dict.fromkeys(layer))
    return list(names)


def largest_share(layers: Sequence[Mapping[str, int]]) -> float:
    """Return the largest share of an operation in its layer's samples; 0: none were counted."""
    largest = 0.0
    for layer in layers:
        largest = max(largest, max(layer.values(), default=0) / max(1, sum(layer.values())))
    return largest


def shade_of(layer: Mapping[str, int], name: str, darkest: float) -> float | None:
    """Return a cell's shade; None: the layer does not have this operation."""
    if name not in layer:
        return None
    if not darkest:
        return 0.0
    return layer[name] / darkest


def percent_text(layer: Mapping[str, int], name: str, total: int) -> str:
    if name not in layer:
        return ""
    return f"{100 * layer[name] / max(1, total):.0f}"


def is_chosen(result: RunResult, layer: int, name: str) -> bool:
    return any(len(tier.path) > layer and tier.path[layer] == name for tier in result.tiers)


def most_used(layers: Sequence[Mapping[str, int]]) -> str:
    """Name the operations that were trained most often, over all layers."""
    totals: dict[str, int] = {}
    for layer in layers:
        for name, count in layer.items():
            totals[name] = totals.get(name, 0) + count
    whole = sum(totals.values())
    if not whole:
        return "No sample was counted."
    most_first = sorted(totals, key=lambda name: -totals[name])[:MOST_OPERATIONS]
    parts = []
    for name in most_first:
        share = 100 * totals[name] / whole
        parts.append(f"{name} ({share:.0f} %)")
    return f"Most often: {', '.join(parts)}."
