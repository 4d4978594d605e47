"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from rich.box import SIMPLE_HEAD
from rich.table import Table

from fedloom.metrics.metric import METRICS, Metric
from fedloom.records.comparison import Difference, MethodRow, OverSeeds
from fedloom.records.result import ClientResult, Phase, RunResult
from fedloom.report.architectures import in_words
from fedloom.report.incidents import incidents

SHORT = {"f1": "F1", "accuracy": "acc."}  # figures beside the metric, in the head of a column


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def amount(value: float | None) -> str:
    """A count in the unit a person reads: 1234567 → 1.2 M."""
    if value is None:
        return "–"
    for size, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


class Sent(Protocol):
    """Bytes, of a run or of the rounds so far."""

    @property
    def down(self) -> int: ...
    @property
    def up(self) -> int: ...
    @property
    def lan_down(self) -> int: ...
    @property
    def lan_up(self) -> int: ...


def both_ways(sent: Sent) -> str:
    """What went to the server's side of the network and back, and, in a clustered topology, what did not."""
    text = f"{amount(sent.down)}B down, {amount(sent.up)}B up"
    inside = sent.lan_down + sent.lan_up
    return f"{text}, {amount(inside)}B inside clusters" if inside else text


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def plain_table(title: str, caption: str, columns: Sequence[str]) -> Table:
    """No frames: what a table says must fit into 80 columns. The first and last columns hold names."""
    table = Table(
        title=title,
        caption=caption,
        title_justify="left",
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=0,
    )
    for name in columns:
        names = name in ("method", "architecture", "run", "operation")
        least = 12 if name == "method" else None
        table.add_column(
            name, justify="left" if names else "right", no_wrap=not names, overflow="fold", min_width=least
        )
    return table


def run_table(result: RunResult, most: int = 40) -> Table:
    """A line a client, and their summary."""
    metric = result.judged_by
    title = f"{result.short_method} on {result.data.name}, {result.data.partition}, seed {result.seed}"
    table = plain_table(title, summary(result), client_columns(result))
    for client in result.clients[:most]:
        table.add_row(*client_cells(client, metric, latency=result.latency is not None))
    more = len(result.clients) - most
    if more > 0:
        blank = [""] * (len(table.columns) - 2)
        table.add_row("…", *blank, f"{more} more in result.json")
    return table


def summary(result: RunResult) -> str:
    """What stands below the table: the figures over all clients, the cost, and what a reader must know of them."""
    metric, spread = result.judged_by, result.spread
    lower = " (lower is better)" if metric.lower_is_better else ""
    shared = ""
    if result.shared_pooled is not None:
        shared = f"; the shared model alone, pooled: {metric.text(result.shared_pooled)}{metric.unit}"
    sentences = [
        f"{metric.name} on local test data{lower}: "
        f"mean {metric.text(spread.mean)} ± {metric.text(spread.std)} over clients, "
        f"worst {metric.text(spread.worst)}, pooled {metric.text(spread.pooled)}{metric.unit}{shared}.",
        f"{result.rounds} rounds, {', '.join(costs(result))}.",
    ]
    text = " ".join(sentences) + schedule(result.phases)
    return " ".join([text, *incidents(result)]) + seen(result)


def costs(result: RunResult) -> list[str]:
    parts = [both_ways(result.traffic)]
    if result.macs is not None:
        parts.append(f"{amount(result.macs)}MACs")
    parts.append(duration(result.seconds))
    if result.memory is not None:
        parts.append(f"at most {amount(result.memory)}B of memory a client")
    return parts


def schedule(phases: Sequence[Phase]) -> str:
    """What a run made of its method's schedule, beside the paper's."""
    if not phases:
        return ""
    total = sum(phase.rounds for phase in phases)
    ours = [f"{phase.rounds} {phase.phase} ({100 * phase.rounds / total:.0f} %)" for phase in phases]
    paper = [f"{100 * phase.paper:.0f}" for phase in phases if phase.paper is not None]
    return f" Rounds by phase: {', '.join(ours)}; the paper's {', '.join(paper)} %."


def seen(result: RunResult) -> str:
    """What `--init` has made doubtful: the weights may have been trained on samples that are tested here."""
    return not_fair(result.seen)


def unfair(methods: Sequence[MethodRow]) -> str:
    """The same of a comparison, by the run of which most is doubtful."""
    most = max((row.seen or 0 for row in methods), default=0)
    return not_fair(f"up to {most}" if most else None)


def not_fair(samples: int | str | None) -> str:
    if not samples:
        return ""
    return f" NOT A FAIR TEST: the run of --init was trained on {samples} of these test samples."


def client_columns(result: RunResult) -> list[str]:
    """What stands above `client_cells`."""
    metric = result.judged_by
    names = ["client", "samples", metric.name + metric.unit, "95 % interval", f"{SHORT[metric.beside[0]]} %"]
    names += ["params", "MACs"]
    if result.latency is not None:
        names.append("ms")
    return [*names, "architecture"]


def client_cells(client: ClientResult, metric: Metric, *, latency: bool) -> list[str]:
    """`latency`: whether there is a column for it."""
    interval = "–"
    if client.interval is not None:
        interval = "–".join(metric.text(end) for end in client.interval)
    cells = [
        str(client.client), str(client.samples), metric.text(client.figure), interval,
        percent(client.beside.get(metric.beside[0])), amount(client.params), amount(client.macs),
    ]  # fmt: skip
    if latency:
        cells.append(milliseconds(client.latency_ms))
    return [*cells, client.reason or in_words(client.architecture)]


def milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def comparison_table(methods: Sequence[MethodRow], about: str) -> Table:
    """A line a method: the metric over seeds, the paired difference to the first, and what it cost."""
    metric = methods[0].judged_by
    head = metric.short + metric.unit
    columns = ("method", head, "vs first", "pooled", "worst", "shared", "params", "rounds", "MACs", "bytes")
    table = plain_table(about, small_print(methods, metric), columns)
    for row in methods:
        name = row.name.replace(",", ",\n  ")
        tuned = "".join(f"\n  {option}={value}" for option, value in (row.tuned or {}).items())
        pooled, worst, shared = (metric.text(figure.mean) for figure in (row.pooled, row.worst, row.shared))
        table.add_row(
            name + tuned, plus_minus(row.figure, metric), difference(row.difference, metric), pooled, worst,
            shared, amount(row.params), f"{row.rounds:g}", amount(row.macs), f"{amount(row.bytes)}B",
        )  # fmt: skip
    return table


def plus_minus(figure: OverSeeds, metric: Metric) -> str:
    if figure.std is None:
        return metric.text(figure.mean)
    return f"{metric.text(figure.mean)}\n± {metric.text(figure.std)}"


def difference(gap: Difference | None, metric: Metric) -> str:
    if gap is None:
        return ""
    mean, low, high = (metric.text(value, "+") for value in (gap.mean, gap.low, gap.high))
    return mean if gap.low is None else f"{mean}\n[{low},\n{high}]"


def small_print(methods: Sequence[MethodRow], metric: Metric) -> str:
    seeds = methods[0].runs
    paired = "One seed: a difference has no interval, so do not conclude from it; add --seeds 0,1,2."
    if seeds > 1:
        paired = (
            f"± is the standard deviation over {seeds} seeds; differences to {methods[0].name} are paired by seed, "
            "with a 95 % interval (Student's t)."
        )
    lower = " (lower is better)" if metric.lower_is_better else ""
    return (
        f"{metric.short}: {metric.name}{lower}, mean over clients on their own test data; pooled: over all test "
        "samples; worst: of the "
        f"clients; shared: the common model alone, pooled. Rounds, MACs and bytes are of training, a run. {paired}"
        + unfair(methods)
    )


def options_table(schema: type[BaseModel]) -> Table:
    """A method's own options and their defaults."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, field in schema.model_fields.items():
        table.add_row(f"--{name.replace('_', '-')}", default_of(field), field.description or "")
    return table


def default_of(field: FieldInfo) -> str:
    choices = get_args(field.annotation)
    words = "|".join(choices) if choices and all(isinstance(choice, str) for choice in choices) else ""
    value = "" if field.default is None else str(field.default)
    return f"{value} ({words})" if words else value


def names_table(rows: Sequence[tuple[str, str]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, about in rows:
        table.add_row(name, about)
    return table


def runs_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = plain_table("", "none yet" if not rows else "", ("run", "state", "rounds", "result", "on disk"))
    for row in rows:
        kinds = {"run": row["state"], "compare": f"{row['state']} comparison"}
        state = kinds.get(row["kind"], "damaged")
        metric = METRICS.get(row["metric"] or "")
        result = "–" if metric is None else f"{metric.name} {metric.text(row['mean'])}{metric.unit}"
        table.add_row(row["run"], state, str(row["rounds"] or ""), result, f"{amount(row['bytes'])}B")
    return table
