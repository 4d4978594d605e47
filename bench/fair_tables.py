"""The evidence for FedNAS and SPIDER as Markdown: figures of runs, and paired differences.

Everything is read from the runs' folders. What was not run is missing from the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean

from fair_trials import (
    DATA_SETS,
    DIGITS,
    LAMBDAS,
    SEARCHERS,
    SHARES,
    SPIDER,
    TRIALS,
    DataSet,
    EqualMacs,
    Runs,
    appendix_folder,
    appendix_rate,
    appendix_with,
    chosen_rate,
    comparison_of,
    equal_macs,
    lambda_folders,
    searcher_folders,
    searcher_with,
    spider_with,
)
from fedloom.evaluate.paired import Paired, holm, over_seeds, paired
from fedloom.records.cautions import FEW_SAMPLES, Cautions, added_up
from fedloom.records.result import RunResult, StageEnd
from fedloom.records.rows import METRICS_FILE, Evaluation, read_rows

POINTS = 100  # accuracies are shown in points
SIGNIFICANT = 0.05
ACCURACY = "accuracy"
BALANCED = "balanced_accuracy"
TUNED = "tune"  # FedNAS's stage that ends with every client's tuned supernet (w_k, α_k)
CUT = "fednas, personal, cut"

# What is claimed of each paper: that the second is ahead of the first.
CLAIMS = {
    "FedNAS": (
        ("one network for all against FedAvg's CNN", "fedavg, CNN", "fednas, one network for all"),
        ("`adapt` against local adaptation", "local-adaptation, CNN", "fednas, personal, adapt"),
        ("`adapt` against its control", "its control (adapt)", "fednas, personal, adapt"),
        ("`cut` against its control", "its control (cut)", CUT),
        (
            "one for all against its control",
            "its control (one for all)",
            "fednas, one network for all",
        ),
        ("`adapt` against `cut`", CUT, "fednas, personal, adapt"),
    ),
    "SPIDER": (
        ("against its control", "its control (spider)", "spider"),
        ("against local adaptation of the CNN", "local-adaptation, CNN", "spider"),
        ("against Ditto with the CNN", "ditto, CNN", "spider"),
        ("against FedNAS `adapt`", "fednas, personal, adapt", "spider"),
        ("against FedNAS `cut`", CUT, "spider"),
        ("against FedNAS for all", "fednas, one network for all", "spider"),
    ),
}

Rows = dict[str, list[RunResult]]  # finished runs of a data set, by the name of their trial
Pair = tuple[Sequence[RunResult], Sequence[RunResult]]


def tables(out: Path) -> Iterator[str]:
    rows: dict[str, Rows] = {}
    for data_set in DATA_SETS:
        runs = comparison_of(out, data_set)
        of_data = {}
        for trial in TRIALS:
            method = trial.method(trial.rates[data_set.number])
            of_data[trial.name] = runs.of(method)
        rows[data_set.name] = of_data
        yield from comparison_table(data_set, of_data)
    yield from claims_tables(rows)
    yield from within_runs_tables(rows)
    yield from genotypes_table(rows)
    yield from macs_table(out, rows)
    yield from lambda_table(out, rows)
    yield from appendix_table(out, rows)
    for data_set in DATA_SETS:
        yield from searchers_table(out, data_set)
    yield from share_table(out)


# Figures and differences


def by_seed(runs: Sequence[RunResult], name: str) -> dict[int, float]:
    """The means over clients, for the runs that have such a figure."""
    values = {}
    for run in runs:
        mean = run.spread_of(name).mean
        if mean is not None:
            values[run.seed] = POINTS * mean
    return values


def figures(runs: Sequence[RunResult], name: str) -> str:
    """Mean and standard deviation over seeds, such as `97.3 ± 0.8`."""
    return in_words(list(by_seed(runs, name).values()))


def in_words(values: Sequence[float]) -> str:
    if not values:
        return "–"
    mean, std = over_seeds(values)
    if std is None:
        return f"{mean:.1f}"
    return f"{mean:.1f} ± {std:.1f}"


def differences(pairs: Sequence[Pair], name: str) -> list[str]:
    """The second minus the first of each pair, with p adjusted for all of them."""
    comparisons = []
    for first, second in pairs:
        before = by_seed(first, name)
        after = by_seed(second, name)
        seeds = sorted(before.keys() & after.keys())
        check_splits(first, second, seeds)
        figures_before = [before[seed] for seed in seeds]
        figures_after = [after[seed] for seed in seeds]
        comparisons.append(pair_of(figures_before, figures_after))
    return adjusted_texts(comparisons)


def check_splits(
    first: Sequence[RunResult], second: Sequence[RunResult], seeds: Sequence[int]
) -> None:
    """Runs of equal seeds must have the same split: others must not be paired."""
    splits = {run.seed: run.data.split for run in first}
    for run in second:
        if run.seed in seeds and run.data.split != splits[run.seed]:
            raise SystemExit(
                f"{run.method} with seed {run.seed} is on another split than what it is compared "
                f"with"
            )


def pair_of(before: Sequence[float], after: Sequence[float]) -> Paired | None:
    if not before:
        return None
    return paired(before, after)


def adjusted_texts(comparisons: Sequence[Paired | None]) -> list[str]:
    """Differences in words, with p adjusted for the whole list."""
    adjusted = holm([p_of(pair) for pair in comparisons])
    return [difference_in_words(pair, p) for pair, p in zip(comparisons, adjusted, strict=True)]


def p_of(pair: Paired | None) -> float | None:
    if pair is None:
        return None
    return pair.p


def difference_in_words(pair: Paired | None, p: float | None) -> str:
    if pair is None:
        return "–"
    if pair.low is None or pair.high is None or p is None:
        return f"{signed(pair.difference)}, no interval"
    text = f"{signed(pair.difference)} [{signed(pair.low)}, {signed(pair.high)}]"
    if pair.low > 0 or pair.high < 0:
        text = f"**{text}**"
    if p < 0.001:
        return f"{text}, p < 0.001*"
    if p < SIGNIFICANT:
        return f"{text}, p {p:.3f}*"
    return f"{text}, p {p:.3f}"


def signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def costs(runs: Sequence[RunResult]) -> list[str]:
    """The parameters of a client's network, and the MACs and bytes of the run."""
    params = []
    for run in runs:
        for client in run.clients:
            params.append(client.params or 0)
    gigamacs = fmean(macs_of(run) / 1e9 for run in runs)
    megabytes = fmean(run.traffic.of_training / 1e6 for run in runs)
    return [f"{fmean(params) / 1e3:.1f} k", f"{gigamacs:.1f} G", f"{megabytes:.0f}"]


def macs_of(run: RunResult) -> int:
    return (run.macs or 0) + run.server_macs


# The comparison


def comparison_table(data_set: DataSet, rows: Rows) -> Iterator[str]:
    first = rows[TRIALS[0].name]
    if not first:
        return
    present = [trial for trial in TRIALS if rows[trial.name]]
    pairs = [(first, rows[trial.name]) for trial in present[1:]]
    by_accuracy = ["", *differences(pairs, ACCURACY)]
    by_balance = ["", *differences(pairs, BALANCED)]
    has_auc = first[0].has_two_classes
    head = [
        "method",
        "lr",
        "mean over clients",
        "against the first",
        "balanced",
        "against the first",
    ]
    if has_auc:
        head.append("AUC")
    head += ["std over clients", "pooled", "worst", "shared model", "tuned supernet"]
    lines = []
    for trial, accuracy, balance in zip(present, by_accuracy, by_balance, strict=True):
        runs = rows[trial.name]
        line = [trial.name, trial.rates[data_set.number], figures(runs, ACCURACY), accuracy]
        line += [figures(runs, BALANCED), balance]
        if has_auc:
            line.append(figures(runs, "auc"))
        lines.append([*line, *spread_cells(runs), tuned_supernet(runs), *costs(runs)])
    yield f"### {data_set.title}\n"
    yield from table([*head, "parameters", "MACs of the run", "MB"], lines)
    common = fmean(POINTS * (run.most_common_class or 0) for run in first)
    beside = "balanced accuracy"
    if has_auc:
        beside += " and AUC"
    yield (
        f"\n{len(first)} seeds. Answering each client's most common class for every sample "
        f"would give "
        f"{common:.1f} %. Tuned supernet: (w_k, α_k) before it is cut, mean over clients, with "
        f"{beside} in parentheses."
    )
    yield f"{caution_lines(rows)}\n"


def spread_cells(runs: Sequence[RunResult]) -> list[str]:
    """The spread over clients, and the pooled figure of the shared model."""
    cells = []
    for name in ("std", "pooled", "worst"):
        cells.append(f"{fmean(POINTS * (getattr(run.spread, name) or 0) for run in runs):.1f}")
    shared = [POINTS * run.shared_pooled for run in runs if run.shared_pooled is not None]
    if shared:
        return [*cells, f"{fmean(shared):.1f}"]
    return [*cells, ""]


def tuned_end(run: RunResult) -> StageEnd | None:
    for end in run.stages:
        if end.stage == TUNED:
            return end
    return None


def tuned_supernet(runs: Sequence[RunResult]) -> str:
    """`94.8 (85.1)`; a dash if balanced accuracy is unknown, nothing if no supernet was tuned."""
    ends = []
    for run in runs:
        end = tuned_end(run)
        if end is not None and end.figure is not None:
            ends.append(end)
    if not ends:
        return ""
    names = [BALANCED]
    if runs[0].has_two_classes:
        names.append("auc")
    further_figures = [mean_beside(ends, name) for name in names]
    accuracy = fmean(POINTS * (end.figure or 0) for end in ends)
    return f"{accuracy:.1f} ({', '.join(further_figures)})"


def mean_beside(ends: Sequence[StageEnd], name: str) -> str:
    """The mean of a further figure; a dash if not every run has it."""
    values = [POINTS * end.beside[name] for end in ends if name in end.beside]
    if len(values) < len(ends):
        return "–"
    return f"{fmean(values):.1f}"


def caution_lines(rows: Mapping[str, Sequence[RunResult]]) -> str:
    """How many clients must be read with caution, each counted once per seed.

    They are listed by method where methods differ.
    """
    clients = 0
    one_answer = {}
    one_class = {}
    few = {}
    for name, runs in rows.items():
        if not runs:
            continue
        cautions = added_up(run.known_cautions for run in runs)
        clients = clients or cautions.clients  # as many as the first method has
        one_answer[name] = one_answer_count(cautions)
        one_class[name] = str(cautions.one_class or 0)
        few[name] = str(cautions.few_samples)
    return (
        f"Of {clients} clients, each counted once a seed. Models that give one answer for every "
        f"test sample: {by_method(one_answer)}. "
        f"Left out of balanced accuracy, as the test part has one class: {by_method(one_class)}. "
        f"Fewer than {FEW_SAMPLES} test samples: {by_method(few)}."
    )


def one_answer_count(cautions: Cautions) -> str:
    """`6 (at 3 the test part has one class)`: there a good model gives one answer, too."""
    if not cautions.one_answer_of_one_class:
        return str(cautions.one_answer or 0)
    return (
        f"{cautions.one_answer} (at {cautions.one_answer_of_one_class} the test part has one class)"
    )


def by_method(counts: Mapping[str, str]) -> str:
    """A single number if all methods have the same; methods with none are not named."""
    different = set(counts.values())
    if different == {"0"}:
        return "none"
    if len(different) == 1:
        return f"{different.pop()} with every method"
    return "; ".join(f"{name} {count}" for name, count in counts.items() if count != "0")


# Claims


def claims_tables(rows: dict[str, Rows]) -> Iterator[str]:
    for paper, claims in CLAIMS.items():
        for name, title in ((ACCURACY, "accuracy"), (BALANCED, "balanced accuracy")):
            yield f"### {paper}, differences by {title}\n"
            pairs = []
            for _, first, second in claims:
                for data_set in DATA_SETS:
                    pairs.append((rows[data_set.name][first], rows[data_set.name][second]))
            yield from by_data_set([text for text, _, _ in claims], differences(pairs, name))


def by_data_set(titles: Sequence[str], cells: Sequence[str]) -> Iterator[str]:
    """One row per title; `cells` are in reading order."""
    columns = len(DATA_SETS)
    rows = []
    for number, title in enumerate(titles):
        rows.append([title, *cells[number * columns : (number + 1) * columns]])
    yield from table(["", *(data_set.title for data_set in DATA_SETS)], rows)
    yield f"\np is adjusted for the {len(cells)} differences of this table.\n"


@dataclass(frozen=True)
class Within:
    """Two figures of the same runs, or of two methods, with one number per seed."""

    title: str
    before: Callable[[Rows], list[float | None]]
    after: Callable[[Rows], list[float | None]]


def within_runs_tables(rows: dict[str, Rows]) -> Iterator[str]:
    """Does cutting gain, does a personal model gain, and how unequal are clients?"""
    for title, questions in (("", BY_ACCURACY), (", by balanced accuracy", BY_BALANCE)):
        comparisons = []
        for question in questions:
            for data_set in DATA_SETS:
                before = question.before(rows[data_set.name])
                after = question.after(rows[data_set.name])
                comparisons.append(pair_of_known(before, after))
        yield f"### Within runs{title}\n"
        titles = [question.title for question in questions]
        yield from by_data_set(titles, adjusted_texts(comparisons))


def pair_of_known(before: Sequence[float | None], after: Sequence[float | None]) -> Paired | None:
    """The figures of the seeds that have both; runs are in the order of their seeds."""
    first = []
    second = []
    for one, other in zip(before, after, strict=True):
        if one is not None and other is not None:
            first.append(POINTS * one)
            second.append(POINTS * other)
    return pair_of(first, second)


def of_runs(
    trial: str, read: Callable[[RunResult], float | None]
) -> Callable[[Rows], list[float | None]]:
    """The figure of every run of a trial."""

    def figures_of(rows: Rows) -> list[float | None]:
        return [read(run) for run in rows[trial]]

    return figures_of


def tuned_figure(run: RunResult) -> float | None:
    end = tuned_end(run)
    if end is None:
        return None
    return end.figure


def tuned_balance(run: RunResult) -> float | None:
    end = tuned_end(run)
    if end is None:
        return None
    return end.balanced_accuracy


def mean_balance(run: RunResult) -> float | None:
    return run.spread_of(BALANCED).mean


BY_ACCURACY = (
    Within(
        "FedNAS `cut`: the trained cut minus the tuned supernet, mean over clients",
        of_runs(CUT, tuned_figure),
        of_runs(CUT, lambda run: run.spread.mean),
    ),
    Within(
        "SPIDER: personal models minus its shared one, pooled",
        of_runs("spider", lambda run: run.shared_pooled),
        of_runs("spider", lambda run: run.spread.pooled),
    ),
    Within(
        "SPIDER's std over clients minus Ditto's",
        of_runs("ditto, CNN", lambda run: run.spread.std),
        of_runs("spider", lambda run: run.spread.std),
    ),
    Within(
        "SPIDER's std over clients minus local adaptation's",
        of_runs("local-adaptation, CNN", lambda run: run.spread.std),
        of_runs("spider", lambda run: run.spread.std),
    ),
)
BY_BALANCE = (
    Within(
        "FedNAS `cut`: the trained cut minus the tuned supernet",
        of_runs(CUT, tuned_balance),
        of_runs(CUT, mean_balance),
    ),
    Within(
        "SPIDER: personal models minus its shared one",
        of_runs("spider", lambda run: run.shared_balanced_accuracy),
        of_runs("spider", mean_balance),
    ),
)


# Architectures


def genotypes_table(rows: dict[str, Rows]) -> Iterator[str]:
    """Personal searches and their controls: how far clients' genotypes are from each other."""
    lines = []
    for name in ("spider", "its control (spider)", CUT, "its control (cut)"):
        line = [name]
        for data_set in DATA_SETS:
            shares = [POINTS * differing_edges(run) for run in rows[data_set.name][name]]
            line.append(in_words(shares))
        lines.append(line)
    yield "### Edges that differ between two clients' genotypes\n"
    titles = [data_set.title for data_set in DATA_SETS]
    yield from table(["% of edges, mean over pairs of clients", *titles], lines)
    yield (
        "\nAn edge differs if it has another operation, or stays in one of the two networks "
        "alone.\n"
    )


def differing_edges(run: RunResult) -> float:
    """The share of edges that differ, as the mean over all pairs of clients."""
    shares = []
    choices = [client.architecture["choice"] for client in run.clients if client.is_searched]
    for one, other in combinations(choices, 2):
        shares.append(fmean(mine != theirs for mine, theirs in zip(one, other, strict=True)))
    return fmean(shares)


# Equal MACs


def macs_table(out: Path, rows: dict[str, Rows]) -> Iterator[str]:
    present = []
    pairs = []
    for equal in equal_macs():
        runs = equal.runs(out).of(equal.label)
        search = rows[equal.data_set.name][equal.search.name]
        if runs and search:
            present.append(equal)
            pairs.append((search, runs))
    if not present:
        return
    by_accuracy = differences(pairs, ACCURACY)
    by_balance = differences(pairs, BALANCED)
    lines = []
    for number, equal in enumerate(present):
        lines.append(macs_cells(equal, pairs[number], by_accuracy[number], by_balance[number]))
    head = ["data", "method", "MACs of", "rounds", "MACs", "of that search's", "mean over clients"]
    yield "### At equal MACs\n"
    yield from table(
        [*head, "against that search", "balanced", "against that search", "AUC"], lines
    )
    yield f"\np is adjusted for the {len(present)} differences of a column.\n"


def macs_cells(equal: EqualMacs, pair: Pair, accuracy: str, balance: str) -> list[str]:
    search, runs = pair
    macs_of_search = {run.seed: macs_of(run) for run in search}
    shares = []
    for run in runs:
        if run.seed in macs_of_search:
            shares.append(POINTS * macs_of(run) / macs_of_search[run.seed])
    gigamacs = fmean(macs_of(run) / 1e9 for run in runs)
    return [
        equal.data_set.title,
        equal.plain.name,
        equal.search.name,
        f"{fmean(run.rounds for run in runs):.0f}",
        f"{gigamacs:.1f} G",
        f"{min(shares):.1f} to {max(shares):.1f} %",
        figures(runs, ACCURACY),
        accuracy,
        figures(runs, BALANCED),
        balance,
        auc_of(runs),
    ]


def auc_of(runs: Sequence[RunResult]) -> str:
    """The area under the curve, where there are two classes."""
    if not runs[0].has_two_classes:
        return ""
    return figures(runs, "auc")


# λ and searchers


def lambda_table(out: Path, rows: dict[str, Rows]) -> Iterator[str]:
    others = Runs(*lambda_folders(out))
    usual = rows[DIGITS.name][SPIDER.name]
    if not others.results or not usual:
        return
    by_value = {value: others.of(spider_with(value)) for value in LAMBDAS}
    pairs = [(usual, runs) for runs in by_value.values()]
    by_accuracy = dict(zip(by_value, differences(pairs, ACCURACY), strict=True))
    by_balance = dict(zip(by_value, differences(pairs, BALANCED), strict=True))
    by_value["0.1"] = [run for run in usual if run.seed in seeds_of(by_value.values())]
    lines = []
    for value in sorted(by_value, key=float):
        runs = by_value[value]
        worst = "–"
        if runs:
            worst = f"{fmean(POINTS * (run.spread.worst or 0) for run in runs):.1f}"
        by_figure = [figures(runs, ACCURACY), by_accuracy.get(value, "")]
        by_figure += [figures(runs, BALANCED), by_balance.get(value, "")]
        lines.append([value, str(len(runs)), *by_figure, worst])
    yield "### λ of SPIDER, digits\n"
    against = "against λ = 0.1"
    yield from table(
        ["λ", "seeds", "mean over clients", against, "balanced", against, "worst"], lines
    )
    yield f"\np is adjusted for the {len(pairs)} differences of a column.\n"


def seeds_of(all_runs: Iterable[Sequence[RunResult]]) -> set[int]:
    seeds: set[int] = set()
    for runs in all_runs:
        seeds.update(run.seed for run in runs)
    return seeds


@dataclass(frozen=True)
class Appendix:
    """SPIDER on one data set: the comparison's own runs, and those by MiLeNAS's gradients."""

    data_set: DataSet
    rate: str
    usual: Sequence[RunResult]
    runs: Sequence[RunResult]


def appendix_table(out: Path, rows: dict[str, Rows]) -> Iterator[str]:
    """SPIDER by MiLeNAS's gradients, beside its own runs by perturbation."""
    present = []
    for data_set in DATA_SETS:
        rate = appendix_rate(out, data_set)
        usual = rows[data_set.name][SPIDER.name]
        if rate is None or not usual:
            continue
        runs = Runs(appendix_folder(out, data_set)).of(appendix_with(rate))
        if runs:
            present.append(Appendix(data_set, rate, usual, runs))
    if not present:
        return
    pairs = [(appendix.usual, appendix.runs) for appendix in present]
    by_accuracy = differences(pairs, ACCURACY)
    by_balance = differences(pairs, BALANCED)
    lines = []
    for number, appendix in enumerate(present):
        data_set = appendix.data_set
        usual_line = [data_set.title, "perturbation", SPIDER.rates[data_set.number]]
        lines.append([*usual_line, *appendix_cells(appendix.usual, "", "")])
        line = [data_set.title, "MiLeNAS (appendix C)", appendix.rate]
        cells = appendix_cells(appendix.runs, by_accuracy[number], by_balance[number])
        lines.append([*line, *cells])
    against = "against perturbation"
    head = [
        "data",
        "searched by",
        "lr",
        "seeds",
        "mean over clients",
        against,
        "balanced",
        against,
        "AUC",
    ]
    yield "### SPIDER by MiLeNAS's gradients\n"
    yield from table([*head, "edges that differ, %", "parameters", "MACs of the run", "MB"], lines)
    yield f"\np is adjusted for the {len(present)} differences of a column.\n"
    for appendix in present:
        yield f"{appendix.data_set.title}. {caution_lines({'MiLeNAS': appendix.runs})}\n"


def appendix_cells(runs: Sequence[RunResult], accuracy: str, balance: str) -> list[str]:
    edges = in_words([POINTS * differing_edges(run) for run in runs])
    by_figure = [figures(runs, ACCURACY), accuracy, figures(runs, BALANCED), balance, auc_of(runs)]
    return [str(len(runs)), *by_figure, edges, *costs(runs)]


def searchers_table(out: Path, data_set: DataSet) -> Iterator[str]:
    """α's gradients, perturbation and chance, each with the rate chosen on validation data."""
    runs = Runs(*searcher_folders(out, data_set))
    rates = {}
    rows = {}
    for variant in SEARCHERS:
        rate = chosen_rate(out, data_set, variant)
        if rate is None:
            return
        rates[variant] = rate
        rows[variant] = runs.of(searcher_with(variant, rate))
        if not rows[variant]:
            return
    by_perturbation, by_alpha, by_chance = rows.values()
    has_auc = by_alpha[0].has_two_classes
    lines = []
    for variant, title in SEARCHERS.items():
        line = [
            title,
            rates[variant],
            figures(rows[variant], ACCURACY),
            figures(rows[variant], BALANCED),
        ]
        if has_auc:
            line.append(figures(rows[variant], "auc"))
        lines.append([*line, *costs(rows[variant])])
    head = ["searched by", "lr", "mean over clients", "balanced"]
    if has_auc:
        head.append("AUC")
    yield f"### Perturbation against MiLeNAS, {data_set.title}, {len(by_alpha)} seeds\n"
    yield from table([*head, "parameters", "MACs of the run", "MB"], lines)
    pairs = [(by_alpha, by_perturbation), (by_chance, by_perturbation), (by_chance, by_alpha)]
    titled = {SEARCHERS[variant]: results for variant, results in rows.items()}
    titles = ["perturbation − α's gradients", "perturbation − chance", "α's gradients − chance"]
    by_accuracy = differences(pairs, ACCURACY)
    by_balance = differences(pairs, BALANCED)
    compared = []
    for number, title in enumerate(titles):
        compared.append([title, by_accuracy[number], by_balance[number]])
    yield ""
    yield from table(["", "accuracy", "balanced accuracy"], compared)
    yield f"\np is adjusted for the {len(pairs)} differences of a column. {caution_lines(titled)}\n"


def share_table(out: Path) -> Iterator[str]:
    """The search shares, by validation figures of the reported round."""
    for kind, title in (
        ("adapt", "the demo's (adapt, 12 rounds)"),
        ("global", "one network for all (20 rounds)"),
    ):
        accuracies: dict[str, list[float]] = {}
        balanced: dict[str, list[float]] = {}
        for share in SHARES:
            accuracies[share] = []
            balanced[share] = []
            for seed in DIGITS.seeds:
                evaluation = last_evaluation(out / f"share-{kind}-{share}-{seed}")
                if evaluation is not None:
                    accuracies[share].append(POINTS * (evaluation.value or 0))
                    balanced[share].append(POINTS * (evaluation.balanced_accuracy or 0))
        least_seeds = min(len(values) for values in accuracies.values())
        if least_seeds < len(DIGITS.seeds):
            continue
        by_accuracy = against_a_quarter(accuracies)
        by_balance = against_a_quarter(balanced)
        lines = []
        for share in SHARES:
            by_seed = ", ".join(f"{value:.1f}" for value in accuracies[share])
            line = [share, by_seed, f"{fmean(accuracies[share]):.1f}", by_accuracy.get(share, "")]
            lines.append([*line, f"{fmean(balanced[share]):.1f}", by_balance.get(share, "")])
        yield f"### How long to search: {title}, digits, validation data\n"
        head = ["search_share", "% by seed", "mean", "against 0.25", "balanced", "against 0.25"]
        yield from table(head, lines)
        yield ""


def last_evaluation(folder: Path) -> Evaluation | None:
    """The last evaluation of a finished run on validation data; None: there is none."""
    if not (folder / "result.json").exists():
        return None
    last = None
    for row in read_rows(folder / METRICS_FILE):
        if row.evaluation is not None and row.evaluation.part == "validation":
            last = row.evaluation
    return last


def against_a_quarter(by_share: Mapping[str, Sequence[float]]) -> dict[str, str]:
    """The difference of every other share, with p adjusted for all of them."""
    others = [share for share in SHARES if share != "0.25"]
    pairs = [paired(by_share["0.25"], by_share[share]) for share in others]
    return dict(zip(others, adjusted_texts(pairs), strict=True))
