"""The terminal's table of a comparison, and what its columns mean."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from fedloom.evaluate.summary import without_none
from fedloom.metrics.metric import Metric
from fedloom.records.comparison import SIGNIFICANT, Difference, Holm, MethodRow, OverSeeds, StageRow
from fedloom.report.cautions import cautions_of_methods
from fedloom.report.numbers import EXPLAINED, SHORT, amount, direction, in_parentheses, percent
from fedloom.report.run_table import not_fair
from fedloom.report.tables import plain_table

MOST_COMMON = "(most common class)"  # the row of the baseline that always answers this class
NEW_LINE = "\n"
STAGES = "stages"  # the column with the final figures of earlier stages
LEAST_P = 0.001  # a smaller p is written as "p<0.001"


def comparison_table(methods: Sequence[MethodRow], about: str) -> Table:
    """Return the table of a comparison: one row per method.

    A row has the metric over seeds, the paired difference to the first method, and the cost.
    """
    metric = methods[0].judged_by
    caption = " ".join([*cautions_of_methods(methods), small_print(methods, metric)])
    table = plain_table(about, caption, comparison_columns(methods))
    for row in methods:
        table.add_row(*comparison_cells(row, methods))
    most_common = most_common_class(methods)
    if most_common is not None:
        blank = [""] * (len(table.columns) - 2)
        table.add_row(MOST_COMMON, metric.text(most_common), *blank)
    return table


def comparison_columns(methods: Sequence[MethodRow]) -> list[str]:
    """Return the headings of `comparison_cells`.

    Some columns stand two in one, or the table would be too wide.
    """
    metric = methods[0].judged_by
    columns = ["method", metric.short + metric.unit]
    beside = columns_beside(methods)
    if beside:
        columns.append("\n".join(SHORT[name] for name in beside))
    columns += ["vs first", "pooled", "worst", "shared"]
    if stage_names(methods):
        columns += [STAGES, "params\nrounds"]
    else:
        columns += ["params", "rounds"]
    columns.append("MACs\nbytes")
    return columns


def comparison_cells(row: MethodRow, methods: Sequence[MethodRow]) -> list[str]:
    """Return a method's row; the rows of all `methods` decide which columns there are."""
    metric = row.judged_by
    name = row.name.replace(",", ",\n  ")
    for option, value in (row.tuned or {}).items():
        name += f"\n  {option}={value}"
    cells = [name, plus_minus(row.figure, metric)]
    if columns_beside(methods):
        cells.append("\n".join(cells_beside(row, methods)))
    cells += [
        difference(row, metric),
        pooled_text(row, NEW_LINE),
        metric.text(row.worst.mean),
        shared_text(row, NEW_LINE),
    ]
    params = amount(row.params)
    rounds = f"{row.rounds:g}"
    if stage_names(methods):
        cells += [stages_text(row), f"{params}\n{rounds}"]
    else:
        cells += [params, rounds]
    cells.append(f"{amount(row.macs)}\n{amount(row.bytes)}B")
    return cells


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
    means = [percent(over_seeds.mean) for over_seeds in without_none(beside)]
    return in_parentheses(figure, means, between)


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
    ends = "the results of a method's earlier stages, such as a supernet before it is cut"
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
    star = ""
    if holm.significant:
        star = "*"
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
    about = "shared: the shared model alone, pooled"
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
    return without_none(row.difference for row in methods)


def unfair(methods: Sequence[MethodRow]) -> str:
    """Warn like `seen` about a comparison: by the run with most such samples."""
    most = max((row.seen or 0 for row in methods), default=0)
    if not most:
        return ""
    return not_fair(f"up to {most}")
