"""What was found, for whom, at what cost; or how far a run is."""

from __future__ import annotations

import json
from statistics import fmean

from fedloom.records.result import RunResult
from fedloom.report.architectures import in_words
from fedloom.report.damage import damage_note
from fedloom.report.html import Safe, joined, tag
from fedloom.report.incidents import incidents
from fedloom.report.parts import note, tiles
from fedloom.report.story import Story
from fedloom.report.tables import amount, both_ways, duration, seen


def headline(story: Story) -> Safe:
    """Always there: the page's first section has its only first-rank heading."""
    title = tag("h1", f"{story.method} on {about_data(story)}")
    content = underway(story) if story.result is None else found(story, story.result)
    damage = damage_note(damage.sentence for damage in story.damage)
    return tag("section", tag("p", story.name, class_="eyebrow"), title, content, damage, id="headline")


def about_data(story: Story) -> str:
    if story.result is not None:
        result = story.result
        return f"{result.data.name}, {result.data.partition}, seed {result.seed}"
    if story.config is None:
        return "unknown data"
    if story.federated:
        return f"federation, sites, seed {story.config.seed}"
    data = story.config.data
    return f"{data.name.rpartition('/')[2]}, {data.partition}, seed {story.config.seed}"


def found(story: Story, result: RunResult) -> Safe:
    metric, spread = story.metric, result.spread
    worst = worst_client(story)
    lower = " (lower is better)" if metric.lower_is_better else ""
    return joined(
        tag("p", sentence(story, result), class_="lead"),
        tiles(
            (f"mean {metric.name}", story.figure(spread.mean), f"± {metric.text(spread.std)} over clients"),
            ("worst client", story.figure(spread.worst), "" if worst is None else story.called(worst)),
            ("pooled", story.figure(spread.pooled), "over all test samples"),
            ("the shared model alone", story.figure(result.shared_pooled),
             "there is none" if result.shared_pooled is None else "pooled"),
        ),
        tiles(*costs(result)),
        note(f"{metric.name.capitalize()} is on each client's own test data{lower}. {caution(result)}"),
    )  # fmt: skip


def caution(result: RunResult) -> str:
    sentences = ["One seed is an example, not evidence: compare methods with `fedloom compare … --seeds 0,1,2`."]
    evaluated = len(result.clients)
    silent = sum(client.reason is not None for client in result.clients)
    if silent:
        sentences.append(f"{silent} of {evaluated} clients gave no final figures.")
    if result.registered > evaluated:
        sentences.append(f"Evaluated at the end: a sample of {evaluated:,} of {result.registered:,} clients.")
    sentences += incidents(result)
    return " ".join(sentences) + seen(result)


def costs(result: RunResult) -> list[tuple[str, str, str]]:
    computed = "–" if result.macs is None else f"{amount(result.macs)}MACs"
    tiles = [
        parameters(result),
        ("traffic", f"{amount(result.traffic.of_training)}B", both_ways(result.traffic)),
        ("computed", computed, "in training, all clients"),
        ("time", duration(result.seconds), f"{result.rounds} rounds"),
    ]
    if result.memory is not None:
        tiles.append(("memory", f"{amount(result.memory)}B", "at most, a client at work"))
    return tiles


def parameters(result: RunResult) -> tuple[str, str, str]:
    params = [client.params for client in result.clients if client.params is not None]
    if not params:
        return "parameters", "–", "a site does not tell"
    about = "each"
    if len(set(params)) > 1:
        about = f"{amount(min(params))} to {amount(max(params))}"
    return "parameters", amount(fmean(params)), about


def sentence(story: Story, result: RunResult) -> str:
    mean = story.figure(result.spread.mean)
    return f"{networks(story)} {story.metric.name.capitalize()} on their own test data is {mean} on average."


def networks(story: Story) -> str:
    """Whether something was searched, and whether each client has its own."""
    clients = len(story.clients)
    plain = [client.architecture for client in story.clients if client.architecture]
    searched = {json.dumps(arch) for arch in plain if isinstance(arch, dict)}
    who = f"{clients:,} clients" if clients != 1 else "one client"
    if len(searched) > 1:
        return f"{story.method} found {len(searched):,} different networks for {who}."
    if searched:
        return f"{story.method} found one network for {who}: {in_words(plain[0])}."
    if plain:
        names = sorted({str(arch) for arch in plain})
        return f"{story.method} trained {', '.join(names[:3])} for {who}."
    return f"{story.method} trained networks for {who}, who do not tell what they look like."


def worst_client(story: Story) -> int | None:
    """Of equals, the first."""
    worst: tuple[float, int] | None = None
    for client in story.clients:
        if client.figure is not None and (worst is None or story.metric.better(worst[0], client.figure)):
            worst = client.figure, client.client
    return None if worst is None else worst[1]


def underway(story: Story) -> Safe:
    """A run without results says what there is."""
    done, of = len(story.rows), story.config.budget.rounds if story.config else 0
    told = f"This run has no result yet, and nobody works on it. Go on with `fedloom resume {story.path}`."
    if story.standing == "running":
        told = "This run is going on; its results come at its end."
    elif story.has_damaged_result:
        told = "This run has no result that can be read, and nobody works on it."
    pairs = [("rounds", f"{done} of {of}" if of and story_in_rounds(story) else str(done), "")]
    evaluations = [row.evaluation for row in story.rows if row.evaluation is not None]
    if evaluations:
        latest = evaluations[-1]
        name = f"{latest.part} {story.metric.name}"
        pairs.append((name, story.figure(latest.value), "mean over clients, so far"))
    if story.rows:
        totals = story.rows[-1].totals
        pairs.append(("traffic", f"{amount(totals.traffic)}B", both_ways(totals)))
        pairs.append(("time", duration(totals.wall), ""))
    bar = (
        tag("progress", value=done, max=max(of, done, 1), aria_label="rounds done") if story_in_rounds(story) else None
    )
    return joined(tag("p", told, class_="lead"), bar, tiles(*pairs))


def story_in_rounds(story: Story) -> bool:
    """Whether the budget is counted in rounds, so that it is known how many there will be."""
    return story.config is not None and story.config.budget.equal == "rounds"
