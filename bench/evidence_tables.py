"""The evidence for FedorAS as Markdown: figures of finished runs, differences, and verdicts.

Everything is read from the runs' `result.json`. A trial that was not run is missing from the
tables, and a claim that has no runs says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evidence_matrix import BASE, PARTITIONS, SKEWED, TIERS, TRIALS, Trial, finished_result
from fedloom.evaluate.paired import Paired, holm, over_seeds, paired
from fedloom.metrics.metric import METRICS
from fedloom.records.cautions import added_up
from fedloom.records.result import RunResult, TierResult

POINTS = 100  # accuracies are shown in points
BALANCED = "balanced_accuracy"
EVERY = "both"  # partitions together
SIGNIFICANT = 0.05
NUMBERS = range(1, TIERS + 1)

APPEARS = "appears"
DOES_NOT = "does not"
NOT_TOLD = "inconclusive"
NOT_RUN = "was not run"

Reading = Callable[[RunResult], float | None]


@dataclass(frozen=True)
class Claim:
    """A claim that `second` − `first` is more than `least`, in the figure of both readings.

    Both trials may be the same one: then two figures of each run are paired.
    """

    text: str
    source: str
    first: str
    second: str
    read_first: Reading
    read_second: Reading
    least: float = 0.0
    per_partition: bool = True


@dataclass(frozen=True)
class Judged:
    """A claim with the result of its runs, over one partition or both."""

    claim: Claim
    partition: str
    first: float | None  # means
    second: float | None
    pair: Paired | None  # None: no two runs have such a figure
    were_run: bool = True  # both trials, or one of them twice
    p: float | None = None  # that the difference is what is claimed at least, by chance
    adjusted: float | None = None  # the same beside all other claims

    @property
    def verdict(self) -> str:
        """The verdict by the plain interval.

        It says so if p, adjusted for all other claims, does not bear it out.
        """
        if not self.were_run:
            return NOT_RUN
        if self.pair is None:
            return NOT_TOLD
        verdict = verdict_of(self.pair, self.claim.least)
        if verdict == NOT_TOLD or self.holds_beside_others:
            return verdict
        return f"{verdict}, by the plain interval alone"

    @property
    def holds_beside_others(self) -> bool:
        return self.adjusted is not None and self.adjusted < SIGNIFICANT


def verdict_of(pair: Paired, least: float) -> str:
    """The verdict by the interval alone: it lies above the claim, below it, or around it."""
    if pair.low is None or pair.high is None:
        return NOT_TOLD
    if pair.low > least:
        return APPEARS
    if pair.high < least:
        return DOES_NOT
    return NOT_TOLD


# Reading runs


class Runs:
    """The finished runs below a folder, by trial, partition and seed."""

    def __init__(self, out: Path) -> None:
        self.by_trial: dict[str, dict[tuple[str, int], RunResult]] = {}
        for trial in TRIALS:
            self.by_trial[trial.name] = dict(self._finished(out, trial))

    @staticmethod
    def _finished(out: Path, trial: Trial) -> Iterator[tuple[tuple[str, int], RunResult]]:
        for partition in trial.partitions:
            for folder in sorted((out / trial.name / partition.replace(":", "-")).glob("seed-*")):
                result = finished_result(folder)
                if result is not None:
                    yield (partition, result.seed), result

    def of(self, trial: str, partition: str) -> list[RunResult]:
        runs = []
        for (where, _), result in sorted(self.by_trial[trial].items()):
            if partition in (where, EVERY):
                runs.append(result)
        return runs

    def pairs(self, claim: Claim, partition: str) -> tuple[list[float], list[float]]:
        """Figures of the same partition and seed, where both runs have one."""
        before = []
        after = []
        for key, first in sorted(self.by_trial[claim.first].items()):
            second = self.by_trial[claim.second].get(key)
            if second is None or partition not in (key[0], EVERY):
                continue
            figure = claim.read_first(first)
            other = claim.read_second(second)
            if figure is not None and other is not None:
                before.append(figure)
                after.append(other)
        return before, after


def judged(claim: Claim, runs: Runs) -> list[Judged]:
    """The claim over both partitions, and over each one if both have runs."""
    rows = [judged_over(claim, runs, EVERY)]
    if not claim.per_partition:
        return rows
    results = []
    for partition in PARTITIONS:
        row = judged_over(claim, runs, partition)
        if row.pair is not None:
            results.append(row)
    if len(results) > 1:
        rows += results
    return rows


def judged_over(claim: Claim, runs: Runs, partition: str) -> Judged:
    before, after = runs.pairs(claim, partition)
    if not before:
        were_run = bool(runs.of(claim.first, partition) and runs.of(claim.second, partition))
        return Judged(claim, partition, None, None, None, were_run)
    return compared(claim, partition, before, after)


def compared(claim: Claim, title: str, before: Sequence[float], after: Sequence[float]) -> Judged:
    first, _ = over_seeds(before)
    second, _ = over_seeds(after)
    claimed = [figure + claim.least for figure in before]
    return Judged(claim, title, first, second, paired(before, after), p=paired(claimed, after).p)


def judged_by_skew(runs: Runs) -> Judged:
    """What the supernet's weights gain at the skewed partition against the other, by seed."""
    claim = Claim(
        "the supernet is worth more where clients differ more",
        "Table 6",
        "scratch-rounds",
        BASE,
        mean_of_tiers,
        mean_of_tiers,
    )
    even = gains(claim, runs, PARTITIONS[0])
    skewed = gains(claim, runs, SKEWED)
    seeds = sorted(even.keys() & skewed.keys())
    title = f"{SKEWED} against {PARTITIONS[0]}"
    if not seeds:
        return Judged(claim, title, None, None, None, were_run=False)
    before = [even[seed] for seed in seeds]
    after = [skewed[seed] for seed in seeds]
    return compared(claim, title, before, after)


def gains(claim: Claim, runs: Runs, partition: str) -> dict[int, float]:
    """The second trial's figure minus the first's, by seed."""
    gain_by_seed = {}
    for (where, seed), first in runs.by_trial[claim.first].items():
        second = runs.by_trial[claim.second].get((where, seed))
        if second is None or where != partition:
            continue
        before = claim.read_first(first)
        after = claim.read_second(second)
        if before is not None and after is not None:
            gain_by_seed[seed] = after - before
    return gain_by_seed


def points(figure: float | None) -> float | None:
    if figure is None:
        return None
    return POINTS * figure


def tier_of(run: RunResult, number: int) -> TierResult | None:
    for tier in run.tiers:
        if tier.tier == number:
            return tier
    return None


def of_tier(number: int) -> Reading:
    """The figure of the tier's network over all clients' test samples, after tuning."""

    def read(run: RunResult) -> float | None:
        tier = tier_of(run, number)
        if tier is None:
            return None
        return points(tier.pooled_over_all)

    return read


def untuned(number: int) -> Reading:
    def read(run: RunResult) -> float | None:
        tier = tier_of(run, number)
        if tier is None:
            return None
        return points(tier.supernet)

    return read


def mean_of_tiers(run: RunResult) -> float | None:
    figures = []
    for tier in run.tiers:
        if tier.pooled_over_all is None:
            return None
        figures.append(POINTS * tier.pooled_over_all)
    if not figures:
        return None
    return sum(figures) / len(figures)


def largest_against_smallest(run: RunResult) -> float | None:
    smallest = of_tier(1)(run)
    largest = of_tier(TIERS)(run)
    if smallest is None or largest is None:
        return None
    return largest - smallest


def pooled(run: RunResult) -> float | None:
    return points(run.spread.pooled)


def mean_over_clients(run: RunResult) -> float | None:
    return points(run.spread.mean)


def worst_client(run: RunResult) -> float | None:
    return points(run.spread.worst)


def steadiness(run: RunResult) -> float | None:
    """Minus the standard deviation over clients: more is fairer."""
    if run.spread.std is None:
        return None
    return -POINTS * run.spread.std


def memory(run: RunResult) -> float | None:
    if run.memory is None:
        return None
    return run.memory / 1e6


def saved_memory(run: RunResult) -> float | None:
    """Minus the peak memory: more is better."""
    peak = memory(run)
    if peak is None:
        return None
    return -peak


def tau(run: RunResult) -> float | None:
    if run.search is None:
        return None
    return run.search.tau


def one_half(_: RunResult) -> float | None:
    return 0.5


def four_fifths(_: RunResult) -> float | None:
    return 0.8


def top_tau(run: RunResult) -> float | None:
    """The mean over tiers."""
    taus = [tier.top_tau for tier in run.tiers if tier.top_tau is not None]
    if not taus:
        return None
    return sum(taus) / len(taus)


def first_generation(run: RunResult) -> float | None:
    """The size in kB of the second minimal supernet: the first pool is larger than later ones."""
    if run.search is None or len(run.search.supernet_bytes) < 3:
        return None
    return run.search.supernet_bytes[1] / 1e3


def last_generation(run: RunResult) -> float | None:
    if run.search is None or len(run.search.supernet_bytes) < 3:
        return None
    return run.search.supernet_bytes[-1] / 1e3


def scoring_bytes(run: RunResult) -> float | None:
    """The megabytes sent down to clients while paths were scored."""
    for stage in run.stages:
        if stage.stage == "search" and stage.down is not None:
            return stage.down / 1e6
    return None


# The paper's claims


def per_tier(
    text: str, source: str, first: str, second: str = BASE, least: float = 0.0
) -> list[Claim]:
    claims = []
    for number in NUMBERS:
        title = f"{text}, tier {number}"
        claims.append(Claim(title, source, first, second, of_tier(number), of_tier(number), least))
    return claims


def claims() -> list[Claim]:
    """The claims in the order in which they matter."""
    same = [
        *per_tier(
            "the searched path beats a random one of its cost, both tuned", "§3.2", "control"
        ),
        *[untuned_claim(number) for number in NUMBERS],
        *per_tier("supernet weights beat fresh ones at equal rounds", "Table 6", "scratch-rounds"),
        *per_tier(
            "supernet weights beat fresh ones at equal MACs", "Table 6, made fair", "scratch-macs"
        ),
        *per_tier("OPA beats FedAvg's mean", "§4.5", "aggregate-fedavg"),
        *per_tier("beats FjORD at equal MACs", "Table 5, Figure 3", "fjord"),
        *per_tier("beats HeteroFL at equal MACs", "Table 5's kind", "heterofl"),
    ]
    for number in NUMBERS:
        title = f"beats FedAvg of a CNN of as many MACs, tier {number}"
        same.append(Claim(title, "§4.2", f"cnn-tier-{number}", BASE, pooled, of_tier(number)))
    return [*same, *fairness_claims(), *other_claims(), *search_claims()]


def untuned_claim(number: int) -> Claim:
    """Figures on test samples: on the samples that it was chosen by, a path looks too good."""
    title = f"the searched path beats a random one of its cost, neither tuned, tier {number}"
    return Claim(title, "§3.2", "control", BASE, untuned(number), untuned(number))


def fairness_claims() -> list[Claim]:
    against = "scratch-rounds"
    return [
        Claim(
            "a higher mean over clients than fresh weights",
            "Table 7",
            against,
            BASE,
            mean_over_clients,
            mean_over_clients,
        ),
        Claim(
            "a smaller std over clients (shown negative)",
            "Table 7",
            against,
            BASE,
            steadiness,
            steadiness,
        ),
        Claim("a better worst client", "Table 7", against, BASE, worst_client, worst_client),
    ]


def other_claims() -> list[Claim]:
    gap = largest_against_smallest
    rows = [
        Claim(
            "the larger tier gains more from the supernet than the smaller",
            "Table 6",
            "scratch-rounds",
            BASE,
            gap,
            gap,
        ),
        Claim(
            "half of the supernet a client costs no point against all of it",
            "§4.5",
            "comm-1",
            BASE,
            mean_of_tiers,
            mean_of_tiers,
            least=-1.0,
        ),
        Claim(
            "a quarter costs no point against all of it",
            "§4.5",
            "comm-1",
            "comm-0.25",
            mean_of_tiers,
            mean_of_tiers,
            least=-1.0,
        ),
        Claim("beats ZeroFL, largest tier", "Table 5", "zerofl", BASE, pooled, of_tier(TIERS)),
        Claim(
            "beats FedNAS at equal MACs, largest tier",
            "Table 3",
            "fednas",
            BASE,
            pooled,
            of_tier(TIERS),
        ),
        Claim(
            "holds less memory than FedNAS (MB, shown negative)",
            "Table 3",
            "fednas",
            BASE,
            saved_memory,
            saved_memory,
        ),
        Claim(
            "random networks of the larger tier lose where only its own clients train them",
            "Figure 1",
            "random-tier",
            "random-all",
            of_tier(TIERS),
            of_tier(TIERS),
        ),
    ]
    for number in NUMBERS:
        title = f"tuning does not fall below the supernet's weights, tier {number}"
        rows.append(Claim(title, "Figure 5", BASE, BASE, untuned(number), of_tier(number)))
    return rows


def search_claims() -> list[Claim]:
    everybody = "score-clients-all"
    return [
        Claim(
            "a fifth of the validation samples costs no point",
            "§4.7",
            BASE,
            "score-samples-0.2",
            mean_of_tiers,
            mean_of_tiers,
            least=-1.0,
        ),
        Claim(
            "half of them costs no point",
            "§4.7",
            BASE,
            "score-samples-0.5",
            mean_of_tiers,
            mean_of_tiers,
            least=-1.0,
        ),
        Claim(
            "more scoring clients rank paths more like the server: τ of all against 2",
            "Figure 6",
            "score-clients-2",
            everybody,
            tau,
            tau,
        ),
        Claim("τ of all clients is above .8", "Figure 6", everybody, everybody, four_fifths, tau),
        Claim(
            "parts of the supernet shrink as the search goes on "
            "(kB, shown from the last to the second)",
            "Figure 6",
            BASE,
            BASE,
            last_generation,
            first_generation,
        ),
        Claim(
            "scores say little of what paths come to: τ below .5",
            "§4.7",
            "tune-top",
            "tune-top",
            top_tau,
            one_half,
        ),
        Claim(
            "a search beats a random path within the limit",
            "control of §3.2",
            "search-random",
            BASE,
            mean_of_tiers,
            mean_of_tiers,
        ),
        Claim(
            "merged statistics of BN choose no worse than each batch's",
            "our default",
            "score-bn-batch",
            BASE,
            mean_of_tiers,
            mean_of_tiers,
            least=-1.0,
        ),
        Claim(
            "nor than recalibrated ones",
            "our default",
            "score-bn-recalibrated",
            BASE,
            mean_of_tiers,
            mean_of_tiers,
            least=-1.0,
        ),
    ]


# Tables


def report(out: Path) -> str:
    runs = Runs(out)
    parts = [count_line(runs)]
    for partition in PARTITIONS:
        parts.append(f"## Networks by tier, {partition}\n\n{tier_table(runs, partition)}")
    parts += [
        f"## Fairness over clients\n\n{fairness_table(runs)}\n\n{cautions_lines(runs)}",
        f"## The paper's claims\n\n{claims_table(runs)}\n\n{OUT_OF_SCOPE}",
        f"## Scoring by clients, {SKEWED}\n\n{scoring_table(runs)}",
        f"## Speech and text\n\n{smoke_table(runs)}",
    ]
    return "\n\n".join(parts) + "\n"


OUT_OF_SCOPE = """Differences are the second minus the first, paired by partition and seed, with
Student's t interval of 95 %. A claim *appears* where the interval lies above what is claimed (0,
unless it says otherwise), *does not* where it lies below, and *inconclusive* otherwise. p is
adjusted by Holm's step-down for all claims that were run; rows of a single partition, where there
are two, repeat a part of what both say and have none. A verdict that p does not bear out (0.05)
says so. Table 4 (SPIDER and FedNAS between silos) was not run; Oort and PyramidFL choose clients,
which is another question."""


def count_line(runs: Runs) -> str:
    finished = sum(len(several) for several in runs.by_trial.values())
    return f"{finished} finished runs."


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "*Nothing was run.*"
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def spread(values: Sequence[float | None], digits: int = 1) -> str:
    """The mean and standard deviation over seeds."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return "–"
    mean, std = over_seeds(numbers)
    if std is None:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {std:.{digits}f}"


def tier_table(runs: Runs, partition: str) -> str:
    header = ["trial", "seeds"]
    for number in NUMBERS:
        header += [f"tier {number}: accuracy %", "before tuning", "k MACs"]
    header += ["training GMACs", "MB down and up", "peak MB"]
    rows = []
    for trial in TRIALS:
        several = runs.of(trial.name, partition)
        if several:
            rows.append(tier_line(trial.name, several))
    return table(header, rows)


def tier_line(name: str, runs: Sequence[RunResult]) -> list[str]:
    cells = [name, str(len(runs))]
    for number in NUMBERS:
        cells += tier_cells(runs, number)
    work = [gigamacs(run) for run in runs]
    megabytes = [run.traffic.of_training / 1e6 for run in runs]
    peaks = [memory(run) for run in runs]
    return [*cells, spread(work), spread(megabytes), spread(peaks, 0)]


def tier_cells(runs: Sequence[RunResult], number: int) -> list[str]:
    """The cells of each tier; a method without tiers has its one network in the first."""
    if not runs[0].tiers:
        if number > 1:
            return ["", "", ""]
        sizes = [client.macs for client in runs[0].clients if client.macs is not None]
        size = "–"
        if sizes:
            size = f"{sizes[0] / 1e3:.0f}"
        return [spread([pooled(run) for run in runs]), "–", size]
    costs: list[float | None] = []
    for run in runs:
        tier = tier_of(run, number)
        if tier is not None:
            costs.append(tier.macs / 1e3)
    after = spread([of_tier(number)(run) for run in runs])
    before = spread([untuned(number)(run) for run in runs])
    return [after, before, spread(costs, 0)]


def gigamacs(run: RunResult) -> float | None:
    if run.macs is None:
        return None
    return (run.macs + run.server_macs) / 1e9


FAIR_TRIALS = (
    BASE,
    "scratch-rounds",
    "scratch-macs",
    "control",
    "fjord",
    "heterofl",
    "cnn-tier-1",
    "cnn-tier-2",
)


def fairness_table(runs: Runs) -> str:
    header = ["trial", "partition", "mean over clients", "std", "worst client", "balanced"]
    for number in NUMBERS:
        header.append(f"tier {number}: mean, std, worst of its own clients; balanced")
    rows = []
    for name in FAIR_TRIALS:
        for partition in PARTITIONS:
            several = runs.of(name, partition)
            if several:
                rows.append(fairness_line(name, partition, several))
    return table(header, rows)


def fairness_line(name: str, partition: str, runs: Sequence[RunResult]) -> list[str]:
    cells = [name, partition, spread([mean_over_clients(run) for run in runs])]
    cells.append(spread([points(run.spread.std) for run in runs]))
    cells.append(spread([worst_client(run) for run in runs]))
    cells.append(spread([points(run.spread_of(BALANCED).mean) for run in runs]))
    for number in NUMBERS:
        means = []
        stds = []
        worsts = []
        balanced = []
        for run in runs:
            tier = tier_of(run, number)
            if tier is not None and tier.own is not None:
                means.append(points(tier.own.mean))
                stds.append(points(tier.own.std))
                worsts.append(points(tier.own.worst))
                balanced.append(points(tier.balanced_accuracy))
        cells.append(f"{spread(means)}; {spread(stds)}; {spread(worsts)}; {spread(balanced)}")
    return cells


def cautions_lines(runs: Runs) -> str:
    """Models that look better than they are, and clients without balanced accuracy."""
    lines = []
    for name in FAIR_TRIALS:
        for partition in PARTITIONS:
            several = runs.of(name, partition)
            if several:
                lines.append(cautions_line(name, partition, several))
    return "\n".join(lines)


def cautions_line(name: str, partition: str, runs: Sequence[RunResult]) -> str:
    """One line of cautions, in which a client counts once for every run."""
    cautions = added_up([run.known_cautions for run in runs])
    return (
        f"- {name}, {partition}: of {cautions.clients} models {cautions.one_answer or 0} give one "
        f"answer, "
        f"{cautions.one_class or 0} test parts have one class, {cautions.few_samples} have under "
        f"20 samples"
    )


def claims_table(runs: Runs) -> str:
    header = [
        "claim",
        "in the paper",
        "partition",
        "pairs",
        "first",
        "second",
        "difference, 95 % interval",
        "p",
    ]
    rows = []
    for row in all_judged(runs):
        rows.append(claim_line(row))
    return table([*header, "verdict"], rows)


def all_judged(runs: Runs) -> list[Judged]:
    """Every claim, with p adjusted.

    The row of a single partition of two repeats what both say, and is not counted.
    """
    rows = []
    for claim in claims():
        rows += judged(claim, runs)
    rows.append(judged_by_skew(runs))
    places = []
    for place, row in enumerate(rows):
        if row.were_run and row.partition not in PARTITIONS:
            places.append(place)
    adjusted = holm([rows[place].p for place in places])
    for place, p in zip(places, adjusted, strict=True):
        rows[place] = replace(rows[place], adjusted=p)
    return rows


def claim_line(row: Judged) -> list[str]:
    cells = [row.claim.text, row.claim.source, row.partition]
    if row.pair is None or row.first is None or row.second is None:
        return [*cells, "0", "–", "–", "–", "–", row.verdict]
    pair = row.pair
    interval = "no interval"
    if pair.low is not None and pair.high is not None:
        interval = f"{pair.low:+.2f} to {pair.high:+.2f}"
    difference = f"{pair.difference:+.2f} ({interval})"
    p = "–"
    if row.adjusted is not None:
        p = f"{row.adjusted:.3f}"
    return [
        *cells,
        str(pair.n),
        f"{row.first:.2f}",
        f"{row.second:.2f}",
        difference,
        p,
        row.verdict,
    ]


def scoring_table(runs: Runs) -> str:
    header = [
        "trial",
        "runs",
        "clients",
        "τ to the server's scores",
        "MB down while scoring",
        "kB of each generation",
    ]
    rows = []
    for name in ("score-clients-2", "score-clients-4", "score-clients-8", "score-clients-all"):
        several = runs.of(name, SKEWED)
        if not several:
            continue
        search = several[0].search
        assert search is not None
        sizes = ", ".join(f"{size / 1e3:.0f}" for size in search.supernet_bytes)
        taus = spread([tau(run) for run in several], 2)
        down = spread([scoring_bytes(run) for run in several], 2)
        rows.append([name, str(len(several)), str(search.tau_clients), taus, down, sizes])
    return table(header, rows)


def smoke_table(runs: Runs) -> str:
    header = ["trial", "metric", "tier", "path", "before tuning", "after", "rounds of tuning"]
    rows = []
    for name in ("smoke-speech", "smoke-text"):
        for run in runs.of(name, "natural"):
            for tier in run.tiers:
                rows.append(smoke_line(name, run, tier))
    return table(header, rows)


def smoke_line(name: str, run: RunResult, tier: TierResult) -> list[str]:
    metric = METRICS[run.metric]
    before = metric.text(tier.supernet)
    after = metric.text(tier.pooled_over_all)
    return [
        name,
        run.metric,
        str(tier.tier),
        ", ".join(tier.path),
        before,
        after,
        str(tier.tuned_rounds),
    ]
