"""Tables for the terminal, and how numbers and sentences in them are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, get_args

from pydantic.fields import FieldInfo
from rich.box import SIMPLE_HEAD
from rich.table import Table

from fedloom.metrics.metric import METRICS, PERPLEXITY, Metric
from fedloom.records.comparison import (
    SIGNIFICANT,
    Difference,
    Holm,
    MethodRow,
    OverSeeds,
    StageRow,
)
from fedloom.records.folder import RunSummary
from fedloom.records.result import ClientResult, RunResult, StageEnd, TierResult
from fedloom.records.result_parts import Phase, Simulated
from fedloom.report.architectures import in_words
from fedloom.report.cautions import (
    cautions_of_methods,
    cautions_of_run,
    gain_sentence,
    most_common_sentence,
)
from fedloom.report.incidents import incidents

# Figures that are shown beside the metric: as a column's heading, as an explanation below a table
# (EXPLAINED), and as a name in a sentence (NAMED).
SHORT = {"balanced_accuracy": "bal.", "auc": "AUC", "accuracy": "acc. %", "mae": "MAE"}
EXPLAINED = {
    "balanced_accuracy": "balanced accuracy, in which every class counts the same",
    "auc": "area under the ROC curve, in percent",
    "mae": "mean absolute error, in the label's own units",
}
MOST_COMMON = "(most common class)"  # the row of the baseline that always answers this class
NAMED = {
    "balanced_accuracy": "balanced accuracy",
    "auc": "AUC",
    "accuracy": "accuracy",
    "mae": "MAE",
}
WORDS = ("method", "architecture", "run", "operation")  # columns that hold words
BY_FORMULA = "by formula"  # the network's MACs times samples, where sites do not report MACs
NEW_LINE = "\n"
STAGES = "stages"  # the column with the final figures of earlier stages
LEAST_P = 0.001  # a smaller p is written as "p<0.001"
UNITS = {1e12: " T", 1e9: " G", 1e6: " M", 1e3: " k"}


def percent(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{100 * value:.1f}"


def amount(value: float | None) -> str:
    """Write a count with a unit prefix: 1234567 → 1.23 M."""
    if value is None:
        return "–"
    for size, unit in UNITS.items():
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3g}"


def counted(number: int, noun: str) -> str:
    """Write a number and its noun: `1 round`, `2 rounds`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}s"


def duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class Sent(Protocol):
    """Bytes that were sent, in a whole run or in the rounds so far."""

    @property
    def down(self) -> int: ...
    @property
    def up(self) -> int: ...
    @property
    def lan_down(self) -> int: ...
    @property
    def lan_up(self) -> int: ...


def both_ways(sent: Sent) -> str:
    """Write the bytes sent to clients and to the server.

    In a clustered topology, bytes that stayed inside clusters are added.
    """
    text = f"{amount(sent.down)}B down, {amount(sent.up)}B up"
    inside = sent.lan_down + sent.lan_up
    if inside:
        text += f", {amount(inside)}B inside clusters"
    return text


def plain_table(title: str, caption: str, columns: Sequence[str]) -> Table:
    """Return an empty table without frames, because it must fit into 80 columns."""
    table = Table(
        title=title,
        caption=caption,
        title_justify="left",
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=0,
    )
    for name in columns:
        if name == "method":
            table.add_column(name, overflow="fold", min_width=12)
        elif name in WORDS:
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", no_wrap=True, overflow="fold")
    return table


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
    beside = [percent(client.beside.get(name)) for name in result.columns_of_classes]
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
        *(percent(over_all.get(name)) for name in result.columns),
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
    notes = dict.fromkeys(tier.note for tier in result.tiers if tier.note is not None)
    for note in notes:  # a note that several tiers have is written once
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
    parts = [f"{text} %" for text in named_figures(figures)]
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


def direction(metric: Metric) -> str:
    """Return " (lower is better)" where that holds, else ""."""
    if not metric.lower_is_better:
        return ""
    return " (lower is better)"


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


def named_figures(figures: Mapping[str, float | None]) -> list[str]:
    """Return `balanced accuracy 85.1` for each figure that is known."""
    parts = []
    for name, figure in figures.items():
        if figure is not None:
            parts.append(f"{NAMED[name]} {percent(figure)}")
    return parts


def seen(result: RunResult) -> str:
    """Warn if the weights of `--init` were trained on samples that are tested here."""
    return not_fair(result.seen)


def unfair(methods: Sequence[MethodRow]) -> str:
    """Warn like `seen` about a comparison: by the run with most such samples."""
    most = max((row.seen or 0 for row in methods), default=0)
    if not most:
        return ""
    return not_fair(f"up to {most}")


def not_fair(samples: int | str | None) -> str:
    if not samples:
        return ""
    trained_on = f"{samples} of these test samples"
    return f" NOT A FAIR TEST: the --init run was trained on {trained_on}."


def comparison_table(methods: Sequence[MethodRow], about: str) -> Table:
    """Return the table of a comparison: one row per method.

    A row has the metric over seeds, the paired difference to the first method, and the cost.
    """
    metric = methods[0].judged_by
    columns = [
        "method",
        metric.short + metric.unit,
        "vs first",
        "pooled",
        "worst",
        "shared",
        "params",
        "rounds",
        "MACs\nbytes",  # two columns in one, or the table would be too wide
    ]
    beside = columns_beside(methods)
    if beside:
        columns.insert(2, "\n".join(SHORT[name] for name in beside))
    with_stages = bool(stage_names(methods))
    if with_stages:  # then two other columns become one, or the table would be too wide
        columns[-3:-1] = ["params\nrounds"]
        columns.insert(-2, STAGES)
    caption = " ".join([*cautions_of_methods(methods), small_print(methods, metric)])
    table = plain_table(about, caption, columns)
    for row in methods:
        name = row.name.replace(",", ",\n  ")
        for option, value in (row.tuned or {}).items():
            name += f"\n  {option}={value}"
        cells = [
            name,
            plus_minus(row.figure, metric),
            difference(row, metric),
            pooled_text(row, NEW_LINE),
            metric.text(row.worst.mean),
            shared_text(row, NEW_LINE),
            amount(row.params),
            f"{row.rounds:g}",
            f"{amount(row.macs)}\n{amount(row.bytes)}B",
        ]
        if beside:
            cells.insert(2, "\n".join(cells_beside(row, methods)))
        if with_stages:
            cells[-3:-1] = ["\n".join(cells[-3:-1])]
            cells.insert(-2, stages_text(row))
        table.add_row(*cells)
    most_common = most_common_class(methods)
    if most_common is not None:
        blank = [""] * (len(table.columns) - 2)
        table.add_row(MOST_COMMON, metric.text(most_common), *blank)
    return table


def most_common_class(methods: Sequence[MethodRow]) -> float | None:
    """Return what always answering the most common class gives, if it is the same for all methods.

    Methods on the same splits have the same figure. None: it is not known, or it differs.
    """
    figures = set()
    for row in methods:
        if row.most_common_class is None:
            return None
        figures.add(row.most_common_class.mean)
    if len(figures) != 1:
        return None
    return figures.pop()


def columns_beside(methods: Sequence[MethodRow]) -> list[str]:
    """Return the names of the figures beside the metric that at least one method has."""
    names = []
    for name in ("balanced_accuracy", "auc", "mae"):
        if any(getattr(row, name) is not None for row in methods):
            names.append(name)
    return names


def cells_beside(row: MethodRow, methods: Sequence[MethodRow]) -> list[str]:
    """Return a method's cells in the columns of `columns_beside`."""
    cells = []
    for name in columns_beside(methods):
        figure = getattr(row, name)
        if figure is None:
            cells.append("–")
        else:
            cells.append(row.judged_by.text_beside(figure.mean))
    return cells


def differences_beside(row: MethodRow, methods: Sequence[MethodRow]) -> list[str]:
    """Return the differences of means to the first method, in the columns of `columns_beside`."""
    cells = []
    for name in columns_beside(methods):
        own = getattr(row, name)
        first = getattr(methods[0], name)
        if own is None or first is None or own.mean is None or first.mean is None:
            cells.append("–")
        else:
            cells.append(row.judged_by.text_beside(own.mean - first.mean, "+"))
    return cells


def stage_names(methods: Sequence[MethodRow]) -> list[str]:
    """Return the names of all methods' evaluated stages before the last one, without repeats."""
    names: dict[str, None] = {}
    for row in methods:
        for end in row.stages:
            names[end.stage] = None
    return list(names)


def stage_text(row: MethodRow, stage: str, between: str = " ") -> str:
    """Return a stage's final figures, `94.8 (85.1)`, or "" if the method has no such stage."""
    for end in row.stages:
        if end.stage == stage:
            return figures_of_stage(end, row.judged_by, between)
    return ""


def figures_of_stage(end: StageRow, metric: Metric, between: str) -> str:
    figure = metric.text(end.figure.mean)
    return with_beside(figure, [end.balanced_accuracy, end.auc], between)


def pooled_text(row: MethodRow, between: str = " ") -> str:
    """Return `97.7 (96.2)`: the metric over all test samples, and balanced accuracy over them."""
    figure = row.judged_by.text(row.pooled.mean)
    return with_beside(figure, [row.pooled_balanced_accuracy], between)


def shared_text(row: MethodRow, between: str = " ") -> str:
    """Return the shared model's pooled figure; those in parentheses are means over clients."""
    figure = row.judged_by.text(row.shared.mean)
    return with_beside(figure, [row.shared_balanced_accuracy, row.shared_auc], between)


def with_beside(figure: str, beside: Sequence[OverSeeds | None], between: str) -> str:
    """Append the means of figures in which every class counts the same, in parentheses."""
    others = [percent(other.mean) for other in beside if other is not None]
    return in_parentheses(figure, others, between)


def figure_with(figure: str, beside: Sequence[float | None]) -> str:
    """Append figures in which every class counts the same, in parentheses."""
    return in_parentheses(figure, [percent(other) for other in beside if other is not None])


def in_parentheses(figure: str, others: Sequence[str], between: str = " ") -> str:
    if not others:
        return figure
    return f"{figure}{between}({f',{between}'.join(others)})"


def stages_text(row: MethodRow) -> str:
    """Return the final figures of the stages before the last one, on separate lines."""
    ends = []
    for end in row.stages:
        ends.append(f"{end.stage}\n{figures_of_stage(end, row.judged_by, NEW_LINE)}")
    return NEW_LINE.join(ends)


def about_stages(methods: Sequence[MethodRow], called: str) -> str:
    """Explain the columns of earlier stages, which are headed `called`."""
    parts: dict[str, None] = {}
    beside: dict[str, None] = {}
    for row in methods:
        for end in row.stages:
            parts[end.part] = None
            if end.balanced_accuracy is not None:
                beside["balanced accuracy"] = None
            if end.auc is not None:
                beside["AUC"] = None
    ends = "what a method's earlier stages ended with, such as a supernet before it is cut"
    about = f"{called}: {ends}, mean over clients on their {' or '.join(parts)} data"
    if not beside:
        return about
    return f"{about}; in parentheses {' and '.join(beside)}"


def plus_minus(figure: OverSeeds, metric: Metric) -> str:
    if figure.std is None:
        return metric.text(figure.mean)
    return f"{metric.text(figure.mean)}\n± {metric.text(figure.std)}"


def difference(row: MethodRow, metric: Metric) -> str:
    """Write a method's difference to the first method; "" for the first method itself."""
    if row.difference is None:
        return ""
    return difference_text(row.difference, row.runs, metric)


def difference_text(gap: Difference, runs: int, metric: Metric) -> str:
    """Write a paired difference over `runs` seeds: its mean, its interval and its adjusted p."""
    mean = metric.text(gap.mean, "+")
    if runs > 1 and gap.interval is None:
        return f"{mean}\ninconclusive"
    if gap.interval is None:
        return mean
    low, high = gap.interval
    plain = f"{mean}\n[{metric.text(low, '+')},\n{metric.text(high, '+')}]"
    if gap.holm is None:
        return plain
    return f"{plain}\n{adjusted(gap.holm)}"


def adjusted(holm: Holm) -> str:
    """Write p, adjusted for all comparisons; a star marks a significant difference."""
    star = "*" if holm.significant else ""
    if holm.p < LEAST_P:
        return f"p<{LEAST_P}{star}"
    return f"p={holm.p:.3f}{star}"


def small_print(methods: Sequence[MethodRow], metric: Metric, stages: str = STAGES) -> str:
    """Explain the columns of a comparison, and what may be concluded from them.

    `stages` is the heading of the columns of earlier stages.
    """
    about = f"{metric.title}{direction(metric)}, mean over clients on their own test data"
    columns = [f"{metric.short}: {about}"]
    if metric.short == metric.title:
        columns = [about]
    for name in columns_beside(methods):
        columns.append(f"{SHORT[name]}: {EXPLAINED[name]}")
    columns += [about_pooled(methods), about_worst(methods), about_shared(methods)]
    if stage_names(methods):
        columns.append(about_stages(methods, stages))
    sentences = [
        f"{'; '.join(columns)}.",
        "Rounds, MACs and bytes are those of training, per run.",
        about_seeds(methods),
    ]
    if most_common_class(methods) is not None:
        answer = "always answering each client's most common class would give"
        sentences.insert(1, f"{MOST_COMMON}: what {answer}.")
    return " ".join(sentences) + unfair(methods)


def about_pooled(methods: Sequence[MethodRow]) -> str:
    about = "pooled: over all test samples"
    if all(row.pooled_balanced_accuracy is None for row in methods):
        return about
    return f"{about}, in parentheses balanced accuracy over them"


def about_shared(methods: Sequence[MethodRow]) -> str:
    about = "shared: the common model alone, pooled"
    if all(row.shared_balanced_accuracy is None for row in methods):
        return about
    names = "balanced accuracy"
    if any(row.shared_auc is not None for row in methods):
        names += " and AUC"
    return f"{about}, in parentheses its {names}, mean over clients"


def about_worst(methods: Sequence[MethodRow]) -> str:
    if all(row.runs <= 1 for row in methods):
        return "worst: the worst client"
    return "worst: the mean over seeds of the worst client's figure"


def about_seeds(methods: Sequence[MethodRow]) -> str:
    first = methods[0]
    if first.runs <= 1:
        advice = "so do not conclude from it; add --seeds 0,1,2."
        return f"One seed: a difference has no interval, {advice}"
    deviation = f"± is the standard deviation over {first.runs} seeds"
    paired = f"differences to {first.name} are paired by seed"
    sentences = [f"{deviation}; {paired}, with a 95 % interval (Student's t)."]
    sentences += about_holm(methods)
    if undecided_methods(methods):
        cause = "the difference is the same with every seed"
        sentences.append(f"Inconclusive: {cause}, so there is no estimate of chance; add seeds.")
    return " ".join(sentences)


def about_holm(methods: Sequence[MethodRow]) -> list[str]:
    """Explain p, if some difference has one."""
    gaps = differences_in(methods)
    if all(gap.holm is None for gap in gaps):
        return []
    comparisons = "this comparison"
    if len(gaps) > 1:
        comparisons = f"{len(gaps)} comparisons"
    return [f"p is adjusted for {comparisons} (Holm); *: below {SIGNIFICANT}, beyond chance."]


def undecided_methods(methods: Sequence[MethodRow]) -> list[str]:
    """Return the names of methods whose difference to the first cannot be judged."""
    return [row.name for row in methods if is_undecided(row)]


def is_undecided(row: MethodRow) -> bool:
    """Whether the difference to the first is the same with every seed, so chance is unknown."""
    return row.runs > 1 and row.difference is not None and row.difference.interval is None


def differences_in(methods: Sequence[MethodRow]) -> list[Difference]:
    """Return the differences of all methods that are paired with the first."""
    gaps = []
    for row in methods:
        if row.difference is not None:
            gaps.append(row.difference)
    return gaps


def options_table(fields: Mapping[str, FieldInfo]) -> Table:
    """Return a table of a method's options and those of its search space, with their defaults."""
    table = frameless_table()
    for name, field in fields.items():
        option = f"--{name.replace('_', '-')}"
        table.add_row(option, default_of(field), field.description or "")
    return table


def default_of(field: FieldInfo) -> str:
    value = ""
    if field.default is not None:
        value = str(field.default)
    choices = get_args(field.annotation)
    if not choices or not all(isinstance(choice, str) for choice in choices):
        return value
    return f"{value} ({'|'.join(choices)})"


def names_table(rows: Sequence[tuple[str, str]]) -> Table:
    """Return a table of names and their explanations."""
    table = frameless_table()
    for name, about in rows:
        table.add_row(name, about)
    return table


def frameless_table() -> Table:
    return Table(box=None, padding=(0, 2, 0, 0), show_header=False)


def runs_table(runs: Sequence[RunSummary]) -> Table:
    """Return a table of the folders of runs and comparisons."""
    caption = ""
    if not runs:
        caption = "none yet"
    columns = ["run", "state", "rounds", "result", "bal.", "on disk"]
    has_auc = any(run.auc is not None for run in runs)
    if has_auc:
        columns.insert(-1, "AUC")
    table = plain_table("", caption, columns)
    for run in runs:
        result = "–"
        if run.metric is not None:
            metric = METRICS[run.metric]
            result = f"{metric.title} {metric.text(run.mean)}{metric.unit}"
        rounds = str(run.rounds or "")
        beside = [percent(run.balanced_accuracy)]
        if has_auc:
            beside.append(percent(run.auc))
        on_disk = f"{amount(run.bytes)}B"
        table.add_row(run.run, state_of(run), rounds, result, *beside, on_disk)
    return table


def state_of(run: RunSummary) -> str:
    if run.kind == "run":
        return run.state
    if run.kind == "compare":
        return f"{run.state} comparison"
    return "damaged"
