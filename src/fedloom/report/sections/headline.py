"""The page's first section: the result and its cost, or the progress of a running run."""

from __future__ import annotations

import json
from statistics import fmean

from fedloom.evaluate.summary import without_none
from fedloom.metrics.metric import PERPLEXITY
from fedloom.records.result import RunResult
from fedloom.report.architectures import in_words
from fedloom.report.cautions import cautions_of_run, gain_sentence, most_common_sentence
from fedloom.report.damage import damage_note
from fedloom.report.html import Safe, joined, tag
from fedloom.report.incidents import incidents
from fedloom.report.numbers import BY_FORMULA, NAMED, amount, both_ways, counted, duration, percent
from fedloom.report.parts import Tile, note, tiles, warning
from fedloom.report.run_table import seen
from fedloom.report.story import Story


def headline(story: Story) -> Safe:
    """Return the headline; every page has it, with the page's only first-level heading."""
    return tag(
        "section",
        tag("p", story.name, class_="eyebrow"),
        tag("h1", f"{story.method} on {data_title(story)}"),
        content(story),
        damage_note(damage.sentence for damage in story.damage),
        id="headline",
    )


def content(story: Story) -> Safe:
    """Return the result, or how far the run is."""
    if story.result is None:
        return underway(story)
    return finished(story, story.result)


def data_title(story: Story) -> str:
    """Name the data, the partition and the seed."""
    if story.result is not None:
        result = story.result
        return f"{result.data.name}, {result.data.partition}, seed {result.seed}"
    if story.config is None:
        return "unknown data"
    if story.federated:
        return f"federation, sites, seed {story.config.seed}"
    data = story.config.data
    return f"{data.name.rpartition('/')[2]}, {data.partition}, seed {story.config.seed}"


def finished(story: Story, result: RunResult) -> Safe:
    metric = story.metric
    sentence = f"{metric.heading} is measured on each client's own test data"
    if metric.lower_is_better:
        sentence += " (lower is better)"
    return joined(
        tag("p", lead(story, result), class_="lead"),
        warning(cautions_of_run(result)),
        tiles(*figures(story, result)),
        tiles_beside(result),
        tiles(*costs(result)),
        note(f"{sentence}. {baseline(story)}{cautions(result)}"),
    )


def lead(story: Story, result: RunResult) -> str:
    metric = story.metric.heading
    mean = story.figure(result.spread.mean)
    sentences = [f"{networks(story)} {metric} on their own test data is {mean} on average."]
    gain = gain_sentence(result.known_gain, story.metric)
    if gain:
        sentences.append(gain)
    return " ".join(sentences)


def baseline(story: Story) -> str:
    """Write the baseline that a model must beat: always answering the most common class."""
    sentence = most_common_sentence(story.most_common_class, story.metric)
    if not sentence:
        return ""
    return f"{sentence} "


def tiles_beside(result: RunResult) -> Safe | None:
    """Return tiles of figures in which every class counts the same, or of MAE; None for text."""
    metric = result.judged_by
    if metric is PERPLEXITY:
        return None
    shown = []
    for name in result.columns:
        spread = result.spread_of(name)
        if spread.mean is None:
            continue
        worst = metric.text_beside(spread.worst)
        over_clients = f"± {metric.text_beside(spread.std)} over clients, worst {worst}"
        mean = f"{metric.text_beside(spread.mean)}{metric.unit_beside}"
        shown.append(Tile(NAMED[name], mean, over_clients))
    pooled = result.pooled_balanced_accuracy
    if pooled is not None:
        about = "over all test samples"
        shown.append(Tile("balanced accuracy, pooled", f"{percent(pooled)} %", about))
    if result.known_gain is not None:
        shared = {"balanced_accuracy": result.shared_balanced_accuracy, "auc": result.shared_auc}
        for name, figure in shared.items():
            if figure is not None:
                title = f"{NAMED[name]}, shared model"
                shown.append(Tile(title, f"{percent(figure)} %", "mean over clients"))
    if not shown:
        return None
    return tiles(*shown)


def networks(story: Story) -> str:
    """Say which networks the method trained, whether it searched them, and for whom."""
    architectures = []
    searched = set()
    for client in story.clients:
        if not client.architecture:
            continue
        architectures.append(client.architecture)
        if client.is_searched:
            searched.add(json.dumps(client.architecture))
    users = "one client"
    if len(story.clients) != 1:
        users = f"{len(story.clients):,} clients"
    if story.result is not None and len(story.result.tiers) > 1:
        users = f"{len(story.result.tiers)} tiers of devices, {users}"
    if len(searched) > 1:
        return f"{story.method} found {len(searched):,} different networks for {users}."
    if searched:
        return f"{story.method} found one network for {users}: {in_words(architectures[0])}."
    if architectures:
        names = sorted(set(map(str, architectures)))
        return f"{story.method} trained {', '.join(names[:3])} for {users}."
    return f"{story.method} trained networks for {users}, which do not report their architectures."


def figures(story: Story, result: RunResult) -> list[Tile]:
    metric = story.metric
    spread = result.spread
    worst = worst_client(story)
    worst_name = ""
    if worst is not None:
        worst_name = story.client_name(worst)
    about_shared = "pooled"
    if result.shared_pooled is None:
        about_shared = "there is none"
    over_clients = f"± {metric.text(spread.std)} over clients"
    return [
        Tile(f"mean {metric.title}", story.figure(spread.mean), over_clients),
        Tile("worst client", story.figure(spread.worst), worst_name),
        Tile("pooled", story.figure(spread.pooled), "over all test samples"),
        Tile("the shared model alone", story.figure(result.shared_pooled), about_shared),
    ]


def worst_client(story: Story) -> int | None:
    """Return the number of the client with the worst figure; of equals, the first."""
    worst: int | None = None
    worst_figure: float | None = None
    for client in story.clients:
        if client.figure is None:
            continue
        if worst_figure is None or story.metric.better(worst_figure, client.figure):
            worst = client.client
            worst_figure = client.figure
    return worst


def costs(result: RunResult) -> list[Tile]:
    computed = "–"
    if result.macs is not None:
        computed = f"{amount(result.macs)}MACs"
    computed_by = "in training, all clients"
    if result.macs_by_formula:
        computed_by = f"{computed_by}, {BY_FORMULA}"
    tiles = [
        parameters(result),
        Tile("traffic", f"{amount(result.traffic.of_training)}B", both_ways(result.traffic)),
        Tile("computed", computed, computed_by),
        Tile("time", duration(result.seconds), counted(result.rounds, "round")),
    ]
    if result.memory is not None:
        tiles.append(Tile("memory", f"{amount(result.memory)}B", "peak of one client"))
    return tiles


def parameters(result: RunResult) -> Tile:
    params = [client.params for client in result.clients if client.params is not None]
    if not params:
        return Tile("parameters", "–", "sites do not report them")
    about = "each"
    if len(set(params)) > 1:
        about = f"{amount(min(params))} to {amount(max(params))}"
    return Tile("parameters", amount(fmean(params)), about)


def cautions(result: RunResult) -> str:
    """Write what limits the conclusions: one seed, missing clients, incidents, `--init`."""
    advice = "compare methods with `fedloom compare … --seeds 0,1,2`"
    sentences = [f"One seed is an example, not evidence: {advice}."]
    evaluated = len(result.clients)
    silent = sum(client.reason is not None for client in result.clients)
    if silent:
        sentences.append(f"{silent} of {evaluated} clients gave no final figures.")
    if result.registered > evaluated:
        sample = f"a sample of {evaluated:,} of {result.registered:,} clients"
        sentences.append(f"Evaluated at the end: {sample}.")
    sentences += incidents(result)
    return " ".join(sentences) + seen(result)


def underway(story: Story) -> Safe:
    """Return the headline of a run without a result: its state and the figures so far."""
    rounds = len(story.rows)
    planned = planned_rounds(story)
    bar = None
    if planned is not None:
        whole = max(planned, rounds, 1)
        bar = tag("progress", value=rounds, max=whole, aria_label="rounds done")
    return joined(
        tag("p", state(story), class_="lead"),
        bar,
        tiles(*figures_so_far(story, planned)),
    )


def state(story: Story) -> str:
    if story.standing == "running":
        return "This run is in progress; its results appear when it ends."
    if story.has_damaged_result:
        return "This run has no readable result, and no process is working on it."
    advice = f"Continue it with `fedloom resume {story.path}`."
    return f"This run has no result yet, and no process is working on it. {advice}"


def planned_rounds(story: Story) -> int | None:
    """Return the number of rounds; None: it is not known, as the budget is not in rounds."""
    if story.config is None or story.config.budget.equal != "rounds":
        return None
    return story.config.budget.rounds


def figures_so_far(story: Story, planned: int | None) -> list[Tile]:
    rounds = str(len(story.rows))
    if planned:
        rounds = f"{rounds} of {planned}"
    tiles = [Tile("rounds", rounds)]
    evaluations = without_none(row.evaluation for row in story.rows)
    if evaluations:
        latest = evaluations[-1]
        name = f"{latest.part} {story.metric.title}"
        tiles.append(Tile(name, story.figure(latest.value), "mean over clients, so far"))
        for figure_name, figure in latest.beside.items():
            about = "mean over clients, so far"
            tiles.append(Tile(NAMED[figure_name], f"{percent(figure)} %", about))
    if story.rows:
        totals = story.rows[-1].totals
        tiles.append(Tile("traffic", f"{amount(totals.traffic)}B", both_ways(totals)))
        tiles.append(Tile("time", duration(totals.wall)))
    return tiles
