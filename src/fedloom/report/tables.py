"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from rich.box import SIMPLE_HEAD
from rich.table import Table

from fedloom.metrics.metric import METRICS, Metric
from fedloom.records.totals import lan_traffic_of
from fedloom.report.architectures import in_words
from fedloom.report.incidents import incidents
from fedloom.types import Json

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


def both_ways(sent: Mapping[str, int]) -> str:
    """What went to the server's side of the network and back, and, in a clustered topology, what did not."""
    told = f"{amount(sent['down'])}B down, {amount(sent['up'])}B up"
    inside = lan_traffic_of(sent)
    return f"{told}, {amount(inside)}B inside clusters" if inside else told


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


def run_table(result: Mapping[str, Any], most: int = 40) -> Table:
    """A line a client, and their summary."""
    metric = METRICS[result["metric"]]
    figures, text, unit = result[metric.name], metric.text, metric.unit
    shared = "" if result["global"] is None else f"; the shared model alone, pooled: {text(result['global'])}{unit}"
    method, data = result["method"].rpartition("/")[2], result["data"]
    lower = " (lower is better)" if metric.lower_is_better else ""
    worked = "" if result["macs"] is None else f"{amount(result['macs'])}MACs, "
    held = "" if result.get("memory") is None else f", at most {amount(result['memory'])}B of memory a client"
    table = plain_table(
        f"{method} on {data['name']}, {data['partition']}, seed {result['seed']}",
        f"{metric.name} on local test data{lower}: "
        f"mean {text(figures['mean'])} ± {text(figures['std'])} over clients, "
        f"worst {text(figures['worst'])}, pooled {text(figures['pooled'])}{unit}{shared}. "
        f"{result['rounds']} rounds, {both_ways(result['bytes'])}, "
        f"{worked}{duration(result['seconds'])}{held}.{schedule(result.get('phases', []))}"
        f"{''.join(f' {sentence}' for sentence in incidents(result))}{seen(result)}",
        client_columns(result, metric),
    )  # fmt: skip
    for row in result["clients"][:most]:
        table.add_row(*client_cells(row, metric))
    if len(result["clients"]) > most:
        blank = [""] * (len(table.columns) - 2)
        table.add_row("…", *blank, f"{len(result['clients']) - most} more in result.json")
    return table


def schedule(phases: Sequence[Json]) -> str:
    """What a run made of its method's schedule, beside the paper's."""
    total = sum(phase["rounds"] for phase in phases)
    told = [f"{phase['rounds']} {phase['phase']} ({100 * phase['rounds'] / total:.0f} %)" for phase in phases]
    paper = [f"{100 * phase['paper']:.0f}" for phase in phases if phase["paper"] is not None]
    return f" Rounds by phase: {', '.join(told)}; the paper's {', '.join(paper)} %." if told else ""


def seen(result: Mapping[str, Any]) -> str:
    """What `--init` has made doubtful: the weights may have been trained on samples that are tested here."""
    return not_fair((result.get("init") or {}).get("seen"))


def unfair(methods: Sequence[Json]) -> str:
    """The same of a comparison, by the run of which most is doubtful."""
    most = max((row.get("seen") or 0 for row in methods), default=0)
    return not_fair(f"up to {most}" if most else None)


def not_fair(samples: int | str | None) -> str:
    return f" NOT A FAIR TEST: the run of --init was trained on {samples} of these test samples." if samples else ""


def client_columns(result: Mapping[str, Any], metric: Metric) -> list[str]:
    """What stands above `client_cells`."""
    return [
        "client", "samples", metric.name + metric.unit, "95 % interval", f"{SHORT[metric.beside[0]]} %", "params",
        "MACs", *(["ms"] if "latency" in result else []), "architecture",
    ]  # fmt: skip


def client_cells(row: Mapping[str, Any], metric: Metric) -> list[str]:
    latency = [milliseconds(row["latency_ms"])] if "latency_ms" in row else []
    interval = "–" if row["interval"] is None else "–".join(metric.text(end) for end in row["interval"])
    what = row.get("reason") or in_words(row["architecture"])
    return [
        str(row["client"]), str(row["samples"]), metric.text(row[metric.name]), interval,
        percent(row[metric.beside[0]]), amount(row["params"]), amount(row["macs"]), *latency, what,
    ]  # fmt: skip


def milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def comparison_table(methods: Sequence[Mapping[str, Any]], about: str) -> Table:
    """A line a method: the metric over seeds, the paired difference to the first, and what it cost."""
    metric = METRICS[methods[0]["metric"]]
    head = metric.short + metric.unit
    columns = ("method", head, "vs first", "pooled", "worst", "shared", "params", "rounds", "MACs", "bytes")
    table = plain_table(about, small_print(methods, metric), columns)
    for row in methods:
        name = row["name"].replace(",", ",\n  ")
        tuned = "".join(f"\n  {option}={value}" for option, value in (row["tuned"] or {}).items())
        pooled, worst, shared = (metric.text(row[name]["mean"]) for name in ("pooled", "worst", "global"))
        table.add_row(
            name + tuned, plus_minus(row[metric.name], metric), difference(row["difference"], metric), pooled, worst,
            shared, amount(row["params"]), f"{row['rounds']:g}", amount(row["macs"]), f"{amount(row['bytes'])}B",
        )  # fmt: skip
    return table


def plus_minus(value: Mapping[str, float | None], metric: Metric) -> str:
    return metric.text(value["mean"]) + ("" if value["std"] is None else f"\n± {metric.text(value['std'])}")


def difference(value: Mapping[str, float | None] | None, metric: Metric) -> str:
    if value is None:
        return ""
    mean, low, high = (metric.text(value[name], "+") for name in ("mean", "low", "high"))
    return mean if value["low"] is None else f"{mean}\n[{low},\n{high}]"


def small_print(methods: Sequence[Json], metric: Metric) -> str:
    seeds = methods[0]["runs"]
    paired = (
        f"± is the standard deviation over {seeds} seeds; differences to {methods[0]['name']} are paired by seed, "
        "with a 95 % interval (Student's t)."
        if seeds > 1
        else "One seed: a difference has no interval, so do not conclude from it; add --seeds 0,1,2."
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
