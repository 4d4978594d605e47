"""The terminal's table of one run, and the text below it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from fedloom.evaluate.summary import without_none
from fedloom.metrics.metric import PERPLEXITY
from fedloom.records.result import ClientResult, RunResult, StageEnd, TierResult
from fedloom.records.result_parts import Phase, Simulated
from fedloom.report.architectures import in_words
from fedloom.report.cautions import cautions_of_run, gain_sentence, most_common_sentence
from fedloom.report.incidents import incidents
from fedloom.report.numbers import (
    BY_FORMULA,
    NAMED,
    SHORT,
    amount,
    both_ways,
    counted,
    direction,
    duration,
    in_parentheses,
    milliseconds,
    named_figures,
    named_percents,
    percent,
    percents,
)
from fedloom.report.tables import plain_table


def run_table(result: RunResult, most: int = 40) -> Table:
    """Return the table of a run's result: one row per client and per tier, and a summary below."""
    data = result.data
    title = f"{result.short_method} on {data.name}, {data.partition}, seed {result.seed}"
    table = plain_table(title, summary(result), client_columns(result))
    for client in result.clients[:most]:
        table.add_row(*client_cells(client, result))
    more = len(result.clients) - most
    if more > 0:
        blank = [""] * (len(table.columns) - 2)
        table.add_row("…", *blank, f"{more} more in result.json")
    for number, tier in enumerate(result.tiers):
        if number == 0:
            table.add_section()
        table.add_row(*tier_cells(tier, result))
    return table


def client_columns(result: RunResult) -> list[str]:
    """Return the headings of `client_cells`."""
    metric = result.judged_by
    names = [
        "client",
        "samples",
        metric.title + metric.unit,
        "95 % interval",
        *(SHORT[name] for name in result.columns),
        "params",
        "MACs",
    ]
    if result.latency is not None:
        names.append("ms")
    names.append("architecture")
    return names


def client_cells(client: ClientResult, result: RunResult) -> list[str]:
    """Return a client's row in the table of the result."""
    metric = result.judged_by
    interval = "–"
    if client.interval is not None:
        interval = "–".join(map(metric.text, client.interval))
    cells = [
        f"{client.client} {client.transform_text}".rstrip(),
        str(client.samples),
        metric.text(client.figure),
        interval,
        *(metric.text_beside(client.beside.get(name)) for name in result.columns),
        amount(client.params),
        amount(client.macs),
    ]
    if result.latency is not None:
        cells.append(latency_text(client))
    cells.append(client.reason or network_of(client, result))
    return cells


def latency_text(client: ClientResult) -> str:
    """Write a client's latency.

    Where each sample takes its own path: the mean, the 95th percentile and the worst.
    """
    if client.latency_p95_ms is None:
        return milliseconds(client.latency_ms)
    figures = (client.latency_ms, client.latency_p95_ms, client.latency_worst_ms)
    return " / ".join(map(milliseconds, figures))


def figure_columns(result: RunResult) -> list[str]:
    """Return the headings of `figure_cells`."""
    metric = result.judged_by
    return [metric.title + metric.unit, *(SHORT[name] for name in result.columns_of_classes)]


def figure_cells(client: ClientResult, result: RunResult) -> list[str]:
    """Return a client's figure, then balanced accuracy, and AUC where there are two classes."""
    beside = percents(client.beside, result.columns_of_classes)
    return [result.judged_by.text(client.figure), *beside]


def network_of(client: ClientResult, result: RunResult) -> str:
    """Describe a client's network in words.

    A network that its tier has too is described in the tier's row, and only referred to here.
    """
    for tier in result.tiers:
        if tier.tier == client.tier and tier.architecture == client.architecture:
            return f"of tier {tier.tier}"
    return in_words(client.architecture)


def tier_cells(tier: TierResult, result: RunResult) -> list[str]:
    """Return a tier's row: its own clients' samples, and its network's figure over all clients."""
    samples = 0
    for client in result.clients:
        if client.tier == tier.tier:
            samples += client.samples
    over_all = {"balanced_accuracy": tier.global_balanced_accuracy, "auc": tier.global_auc}
    cells = [
        f"tier {tier.tier}",
        str(samples),
        result.judged_by.text(tier.pooled_over_all),
        "–",
        *percents(over_all, result.columns),
        amount(tier.params),
        amount(tier.macs),
    ]
    if result.latency is not None:
        cells.append(milliseconds(None))
    cells.append(tier.reason or in_words(tier.architecture))
    return cells


def tiers_sentence(result: RunResult) -> str:
    """Explain the rows of tiers; "" where there are no tiers."""
    if not result.tiers:
        return ""
    metric = result.judged_by
    unit = metric.unit
    parts = []
    for tier in result.tiers:
        if tier.own is None:
            continue
        part = f"tier {tier.tier} {metric.text(tier.own.mean)}"
        if tier.balanced_accuracy is not None:
            beside = f"balanced {percent(tier.balanced_accuracy)}"
            if tier.auc is not None:
                beside += f", AUC {percent(tier.auc)}"
            part += f" ({beside})"
        parts.append(part)
    over_own = f"Mean over the clients of each tier: {', '.join(parts)}{unit}."
    about_rows = "A tier's row shows its network's figure over all clients' test samples"
    if any(tier.global_balanced_accuracy is not None for tier in result.tiers):
        about_rows += ", balanced accuracy as the mean over all clients"
    sentences = [f"{about_rows}.", over_own]
    notes = without_none(tier.note for tier in result.tiers)
    for note in dict.fromkeys(notes):  # a note that several tiers have is written once
        sentences.append(f"{note}.")
    return " ".join(sentences)


def summary(result: RunResult) -> str:
    """Return the text below a run's table.

    It has the figures over all clients, the cost, and what readers must know to judge them.
    """
    metric = result.judged_by
    costs_of_run = f"{counted(result.rounds, 'round')}, {', '.join(costs(result))}."
    sentences = [
        figures(result),
        tiers_sentence(result),
        gain_sentence(result.known_gain, metric),
        most_common_sentence(result.most_common_class, metric),
        *cautions_of_run(result),
        f"{costs_of_run}{schedule(result.phases)}{earlier(result)}",
        *incidents(result),
    ]
    return " ".join(sentence for sentence in sentences if sentence) + seen(result)


def figures(result: RunResult) -> str:
    """Write the figures over all clients in a sentence."""
    metric = result.judged_by
    spread = result.spread
    about = f"{metric.title} on local test data{direction(metric)}"
    parts = [
        f"mean {metric.text(spread.mean)} ± {metric.text(spread.std)} over clients",
        f"worst {metric.text(spread.worst)}",
        f"pooled {metric.text(spread.pooled)}{metric.unit}",
    ]
    sentence = f"{about}: {', '.join(parts)}"
    if result.shared_pooled is not None:
        shared = metric.text(result.shared_pooled) + metric.unit
        sentence += f"; the shared model alone, pooled: {shared}{shared_beside(result)}"
    return f"{sentence}.{figures_beside(result)}"


def shared_beside(result: RunResult) -> str:
    """Return ` (balanced accuracy 85.1 %, mean over clients)`, or "" for text."""
    if not result.judged_by.counts_answers:
        return ""
    figures = {"balanced_accuracy": result.shared_balanced_accuracy, "auc": result.shared_auc}
    parts = named_percents(figures)
    if not parts:
        return ""
    return in_parentheses("", [*parts, "mean over clients"])


def figures_beside(result: RunResult) -> str:
    """Write the figures beside the metric over all clients; "" for text.

    They are balanced accuracy, and AUC where there are two classes, or MAE.
    """
    metric = result.judged_by
    if metric is PERPLEXITY:
        return ""
    parts = []
    for name in result.columns:
        spread = result.spread_of(name)
        if spread.mean is None:
            continue
        text = f"{NAMED[name]}: mean {metric.text_beside(spread.mean)}"
        text += f" ± {metric.text_beside(spread.std)}, worst {metric.text_beside(spread.worst)}"
        pooled = spread.pooled
        if name == "balanced_accuracy":
            pooled = result.pooled_balanced_accuracy
        if pooled is not None:
            text += f", pooled {metric.text_beside(pooled)}"
        parts.append(f"{text}{metric.unit_beside}")
    if not parts:
        return ""
    text = "; ".join(parts)
    return f" {text[0].upper()}{text[1:]}."


def simulated_sentence(simulated: Simulated) -> str:
    """Write how long the simulated devices took, and what lost clients wasted."""
    parts = [f"{duration(simulated.seconds)} by the simulated clock"]
    lost = []
    if simulated.dropped:
        lost.append(f"{simulated.dropped} left")
    if simulated.late:
        lost.append(f"{simulated.late} came too late")
    if lost:
        wasted = f"{amount(simulated.wasted_macs)}MACs wasted"
        parts.append(f"of {simulated.asked} asked, {' and '.join(lost)}: {wasted}")
    if simulated.stopped != "rounds":
        parts.append(f"stopped by its limit of {simulated.stopped}")
    if len(parts) == 1:
        return parts[0]
    return f"{parts[0]} ({', '.join(parts[1:])})"


def costs(result: RunResult) -> list[str]:
    parts = [both_ways(result.traffic)]
    if result.macs is not None:
        macs = f"{amount(result.macs)}MACs"
        if result.macs_by_formula:
            macs = f"{macs} {BY_FORMULA}"
        parts.append(macs)
    if result.server_macs:
        parts.append(f"{amount(result.server_macs)}MACs on the server")
    parts.append(duration(result.seconds))
    if result.simulated is not None and result.simulated.is_of_interest:
        parts.append(simulated_sentence(result.simulated))
    if result.memory is not None:
        parts.append(f"at most {amount(result.memory)}B of memory per client")
    return parts


def schedule(phases: Sequence[Phase]) -> str:
    """Write how many rounds each phase had, beside the shares in the method's paper."""
    if not phases:
        return ""
    total = sum(phase.rounds for phase in phases)
    ours = []
    paper = []
    for phase in phases:
        share = 100 * phase.rounds / total
        ours.append(f"{phase.rounds} {phase.phase} ({share:.0f} %)")
        if phase.paper is not None:
            paper.append(f"{100 * phase.paper:.0f}")
    sentence = f" Rounds by phase: {', '.join(ours)}"
    if paper:
        sentence += f"; the paper's {', '.join(paper)} %"
    return f"{sentence}."


def earlier(result: RunResult) -> str:
    """Write the final figures of the stages before the last one, such as FedNAS's supernets."""
    metric = result.judged_by
    ends = []
    part = None
    for end in result.stages:
        if end.part is not None:
            part = end.part
            ends.append(f"{end.stage} {metric.text(end.figure)}{metric.unit}{named_beside(end)}")
    if not ends:
        return ""
    return f" Mean over clients on {part} data at the end of earlier stages: {', '.join(ends)}."


def named_beside(end: StageEnd) -> str:
    """Return ` (balanced accuracy 85.1, AUC 90.2)`, or "" where neither is known."""
    return in_parentheses("", named_figures(end.beside))


def seen(result: RunResult) -> str:
    """Warn if the weights of `--init` were trained on samples that are tested here."""
    return not_fair(result.seen)


def not_fair(samples: int | str | None) -> str:
    if not samples:
        return ""
    trained_on = f"{samples} of these test samples"
    return f" NOT A FAIR TEST: the --init run was trained on {trained_on}."
