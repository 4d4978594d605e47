"""What was found, for whom, at what cost; or how far a run is."""

from __future__ import annotations

import json
from statistics import fmean

from fedloom.records.totals import traffic_of
from fedloom.report.architectures import in_words
from fedloom.report.html import Safe, joined, tag
from fedloom.report.incidents import incidents
from fedloom.report.parts import note, tiles
from fedloom.report.story import Story
from fedloom.report.tables import amount, both_ways, duration, seen
from fedloom.types import Json


def headline(story: Story) -> Safe:
    """Always there: the page's first section has its only first-rank heading."""
    title = tag("h1", f"{story.method} on {about_data(story)}")
    content = found(story) if story.result else underway(story)
    return tag("section", tag("p", story.name, class_="eyebrow"), title, content, id="headline")


def about_data(story: Story) -> str:
    if story.result:
        data = story.result["data"]
        return f"{data['name']}, {data['partition']}, seed {story.result['seed']}"
    if story.config is None:
        return "unknown data"
    data = story.config.data
    name = "federation" if story.federated else data.name.rpartition("/")[2]
    return f"{name}, {'sites' if story.federated else data.partition}, seed {story.config.seed}"


def found(story: Story) -> Safe:
    result, metric = story.result or {}, story.metric
    figures = result[metric.name]
    worst = worst_client(story)
    spread = f"± {metric.text(figures['std'])} over clients"
    return joined(
        tag("p", sentence(story), class_="lead"),
        tiles(
            (f"mean {metric.name}", story.figure(figures["mean"]), spread),
            ("worst client", story.figure(figures["worst"]), "" if worst is None else story.called(worst)),
            ("pooled", story.figure(figures["pooled"]), "over all test samples"),
            ("the shared model alone", story.figure(result["global"]),
             "there is none" if result["global"] is None else "pooled"),
        ),
        tiles(*costs(story)),
        note(f"{metric.name.capitalize()} is on each client's own test data"
             + (" (lower is better). " if metric.lower_is_better else ". ") + caution(story)),
    )  # fmt: skip


def caution(story: Story) -> str:
    result = story.result or {}
    told = ["One seed is an example, not evidence: compare methods with `fedloom compare … --seeds 0,1,2`."]
    silent = sum(row.get("reason") is not None for row in story.clients)
    if silent:
        told.append(f"{silent} of {len(story.clients)} clients gave no final figures.")
    if result.get("registered", 0) > len(story.clients):
        told.append(f"Evaluated at the end: a sample of {len(story.clients):,} of {result['registered']:,} clients.")
    told += incidents(result)
    return " ".join(told) + seen(result)


def costs(story: Story) -> list[tuple[str, str, str]]:
    result = story.result or {}
    params = [row["params"] for row in story.clients if row["params"] is not None]
    sent = result["bytes"]
    size = f"{amount(min(params))} to {amount(max(params))}" if len(set(params)) > 1 else "each"
    held = result.get("memory")
    found = [
        ("parameters", amount(fmean(params)) if params else "–", size if params else "a site does not tell"),
        ("traffic", f"{amount(traffic_of(sent))}B", both_ways(sent)),
        ("computed", "–" if result["macs"] is None else f"{amount(result['macs'])}MACs", "in training, all clients"),
        ("time", duration(result["seconds"]), f"{result['rounds']} rounds"),
    ]  # fmt: skip
    return found if held is None else [*found, ("memory", f"{amount(held)}B", "at most, a client at work")]


def sentence(story: Story) -> str:
    result, metric = story.result or {}, story.metric
    mean = story.figure(result[metric.name]["mean"])
    return f"{networks(story)} {metric.name.capitalize()} on their own test data is {mean} on average."


def networks(story: Story) -> str:
    """Whether something was searched, and whether each client has its own."""
    clients, plain = len(story.clients), [row["architecture"] for row in story.clients if row["architecture"]]
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
    metric = story.metric
    rows = [row for row in story.clients if row[metric.name] is not None]
    if not rows:
        return None
    pick = max if metric.lower_is_better else min
    worst: Json = pick(rows, key=lambda row: row[metric.name])
    return int(worst["client"])


def underway(story: Story) -> Safe:
    """A run without results says what there is."""
    done, of = len(story.rows), story.config.budget.rounds if story.config else 0
    told = {
        "running": "This run is going on; its results come at its end.",
        "stopped": f"This run has no result yet, and nobody works on it. Go on with `fedloom resume {story.path}`.",
    }[story.standing if story.standing != "finished" else "stopped"]
    pairs = [("rounds", f"{done} of {of}" if of and story_in_rounds(story) else str(done), "")]
    evaluations = [row.evaluation for row in story.rows if row.evaluation is not None]
    if evaluations:
        latest = evaluations[-1]
        name = f"{latest.part} {story.metric.name}"
        pairs.append((name, story.figure(latest.value), "mean over clients, so far"))
    if story.rows:
        totals = story.rows[-1].totals
        pairs.append(("traffic", f"{amount(totals.traffic)}B", both_ways(totals.to_json())))
        pairs.append(("time", duration(totals.wall), ""))
    bar = (
        tag("progress", value=done, max=max(of, done, 1), aria_label="rounds done") if story_in_rounds(story) else None
    )
    return joined(tag("p", told, class_="lead"), bar, tiles(*pairs))


def story_in_rounds(story: Story) -> bool:
    """Whether the budget is counted in rounds, so that it is known how many there will be."""
    return story.config is not None and story.config.budget.equal == "rounds"
