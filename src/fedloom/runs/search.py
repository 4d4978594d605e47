"""`fedloom search RUN --limit …`: finds a network within a new limit in a finished supernet.

All paths that the run scored are candidates at once. If too few of them are within the limit,
NSGA-II continues from those, with the weights that the run kept (supernet.state). On the user's own
samples (--data) no path has a score yet, so the run's best paths are scored first. Nothing is
trained, unless the user asks for rounds of tuning.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from math import inf
from pathlib import Path as FilePath
from typing import Any

from fedloom.cost.latencies import operation_latencies
from fedloom.cost.limits import Limit
from fedloom.data.partition import parse
from fedloom.errors import FedloomError
from fedloom.export.newdata import Expected
from fedloom.federation.protocol.wire import checked_state_chunks
from fedloom.federation.server.archive import Archive
from fedloom.federation.server.events import Listener
from fedloom.files import write_whole
from fedloom.methods import METHODS, stages
from fedloom.methods.fedoras import TrainSupernet
from fedloom.methods.fedoras_frame import Frame, as_sub_space
from fedloom.methods.fedoras_options import FedorASOptions
from fedloom.methods.fedoras_path import path_state
from fedloom.methods.fedoras_scores import SUPERNET_FILE, row_of
from fedloom.metrics.metric import Metric, metric_of
from fedloom.records.folder import RunFolder
from fedloom.records.opening import FinishedRun, one_run, tell_damage
from fedloom.records.result import FrontPoint
from fedloom.records.scores import SCORES_FILE, ScoredPath, add_scores
from fedloom.records.searches import (
    ANSWER,
    MODEL,
    SEARCHES,
    ScoringData,
    SearchAnswer,
    TunedPath,
    all_scores,
    free_name,
    has_scores,
    scores_file,
    scores_on,
)
from fedloom.report.architectures import pictured
from fedloom.runs.central_set import CentralSet, open_central_set
from fedloom.runs.experiment import short_name
from fedloom.runs.finished import prepared_without_data
from fedloom.runs.path_scoring import Scorer, check_clients_at_hand, scorer_of, scorer_on
from fedloom.runs.path_tuning import Tuned, tune_path
from fedloom.runs.profiles import find as find_profile
from fedloom.searchers.budget_search import BudgetSearch, Pick, best_first
from fedloom.searchers.paths import Path, PathCosts
from fedloom.searchers.tier_search import Memory, Score, SearchSettings, TierSpace, front_of
from fedloom.types import Json, State

USUAL_MODELS = 100  # paths within the limit to score, if the run's own search scored none
UNITS = ("macs", "params", "latency_ms")  # that a limit may be in
NEW = 0  # tier number in scores.jsonl of a path that was scored by such a search, for no tier


@dataclass(frozen=True)
class SearchRequest:
    """What the user asks for: a limit, and how the network is searched for."""

    limit: Limit
    profile: str | None = None  # for latencies
    unsupported: tuple[str, ...] = ()
    models: int | None = None  # None: as many as the run scored for a tier
    pick: Pick = "best"
    tune: int = 0  # rounds of training
    data: str | None = None  # samples to score on; None: those that the run scored on
    data_dir: FilePath | None = None  # folder in which relative data paths are looked for

    @property
    def amounts(self) -> dict[str, float]:
        """The limits by unit, without units that have none. The front is over the first unit."""
        amounts = {}
        for unit in UNITS:
            most = getattr(self.limit, unit)
            if most is not None:
                amounts[unit] = most
        return amounts

    @property
    def name(self) -> str:
        """Name of the search's folder."""
        parts = [f"{unit}-{abbreviated(most)}" for unit, most in self.amounts.items()]
        parts.extend(f"no-{operation}" for operation in self.unsupported)
        if self.pick != "best":
            # Not the number alone: the name of a second search with this limit ends with one too.
            parts.append(f"pick-{self.pick}")
        if self.data is not None:
            parts.append(f"on-{short_name(self.data)}")
        return "-".join(parts)

    def check(self) -> None:
        if not self.amounts:
            raise FedloomError(
                "a search must have a limit that its network stays within",
                "there is none",
                "add --limit macs=100M, or params=… or latency_ms=…",
            )
        if self.limit.latency_ms is not None and self.profile is None:
            raise FedloomError(
                "a limit on latency_ms must come with a profile of the device",
                "there is none",
                "add --profile NAME; `fedloom profile` makes one",
            )
        if self.profile is not None and self.limit.latency_ms is None:
            raise FedloomError(
                "--profile must come with a limit on latency_ms",
                "there is none",
                "add latency_ms=… to --limit, or leave --profile out",
            )
        if self.models is not None and self.models < 1:
            raise FedloomError("--models must be at least 1", f"got {self.models}", "raise it")
        if self.tune < 0:
            rule = "--tune must be a number of rounds"
            raise FedloomError(rule, f"got {self.tune}", "give a whole number above 0")
        if self.data_dir is not None and self.data is None:
            rule = "--data-dir must come with --data"
            raise FedloomError(rule, "there is none", "name the data, or leave --data-dir out")


def abbreviated(number: float) -> str:
    """Write 100,000,000 as 100M."""
    for letter, unit in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= unit:
            return f"{number / unit:.10g}{letter}"
    return f"{number:.10g}"


@dataclass(frozen=True)
class Searched:
    """The network that a search found, and the folder that it is in."""

    run: FilePath
    answer: SearchAnswer
    metric: Metric  # of the run

    @property
    def path(self) -> FilePath:
        return self.run / SEARCHES / self.answer.name

    def to_json(self) -> Json:
        answer = self.answer.to_json()
        name = answer.pop("name")
        return {"run": str(self.run), "search": name, "folder": str(self.path), **answer}

    def table(self) -> None:
        """Print the front, and which of its paths was chosen."""
        from rich.console import Console

        from fedloom.report.search_tables import front_table, score_in_words, tuned_in_words

        answer = self.answer
        Console(markup=False).print(front_table(self.run, answer))
        size = f"{answer.params:,} parameters, {answer.macs:,} MACs"
        score = score_in_words(answer, self.metric)
        print(f"{' '.join(answer.path)}: {size}; {score} with the supernet's weights")
        if answer.tuned is not None:
            print(tuned_in_words(answer.tuned, self.metric))
        export = f"`fedloom export {self.run} --search {answer.name}`"
        print(f"The network is in {self.path}: {export}")


@dataclass(frozen=True)
class Supernet:
    """A finished run's trained supernet, and the scores of its paths."""

    folder: RunFolder
    options: FedorASOptions
    state: State
    rows: tuple[ScoredPath, ...]  # scores of the run and of searches on the same samples
    expected: Expected  # the form that the user's own samples must have

    @classmethod
    def open(cls, path: FilePath | str) -> Supernet:
        check_is_no_method(path)
        folder = one_run(path)
        run = FinishedRun.open(path)
        tell_damage(folder)
        prepared = prepared_without_data(run, folder)
        trained = None
        for stage in stages(prepared.task):
            if isinstance(stage.method, TrainSupernet):
                trained = stage.method
        if trained is None:
            raise FedloomError(
                "a search must be in a run that trained a supernet for tiers of devices",
                f"{folder.path} is a run of {prepared.config.method} and trained none",
                "name a run of fedoras; `fedloom runs` lists yours",
            )
        assert run.record.input is not None  # otherwise the task could not have been rebuilt
        return cls(
            folder,
            trained.options,
            Archive(folder.path).stage_state(SUPERNET_FILE),
            tuple(all_scores(folder.path)),
            Expected(
                prepared.task,
                run.record.input.resize,
                run.record.input.fit,
                is_tinted=parse(run.record.data.partition).has_tint,
            ),
        )

    @cached_property
    def frame(self) -> Frame:
        return Frame.from_plain(self.state.meta["frame"])

    @property
    def seed(self) -> int:
        seed: int = self.state.meta["seed"]
        return seed

    def scores(self) -> dict[Path, Score]:
        """Scores of all paths that were ever scored on the run's samples."""
        return self.scores_in(self.rows)

    def scores_in(self, rows: Iterable[ScoredPath]) -> dict[Path, Score]:
        layers = []
        for slot in self.frame.space.slots:
            layers.append({name: op for op, name in enumerate(slot.options)})
        scores = {}
        for row in rows:
            path = path_by_names(row.path, layers, self.folder.path)
            beside = (row.balanced_accuracy, row.auc)
            scores[path] = Score(row.loss, row.accuracy, row.samples, *beside)
        return scores

    def usual_models(self) -> int:
        """The largest number of paths that the run's search scored for a tier."""
        counts: dict[int, int] = {}
        for row in self.rows:
            if row.tier != NEW:
                counts[row.tier] = counts.get(row.tier, 0) + 1
        return max(counts.values(), default=USUAL_MODELS)


def path_by_names(
    names: Sequence[str],
    layers: Sequence[Mapping[str, int]],
    run: FilePath,
) -> Path:
    try:
        return tuple(layer[name] for layer, name in zip(layers, names, strict=True))
    except (KeyError, ValueError):
        rule = f"{run}/{SCORES_FILE} must have paths of the run's own space"
        problem = f"it has {' '.join(names)!r}"
        raise FedloomError(rule, problem, "restore it, or delete it") from None


def check_is_no_method(path: FilePath | str) -> None:
    """Refuse `fedloom search spider`, where a method's name takes the place of a run."""
    name = str(path)
    if name.partition(":")[0] in METHODS.names() and not FilePath(name).exists():
        raise FedloomError(
            "`fedloom search` must be given a finished run",
            f"{name} is a method",
            f"did you mean `fedloom run {name}`",
        )


# Limits


def space_within(supernet: Supernet, request: SearchRequest) -> TierSpace:
    """The paths within the limit; a limit below the cheapest path is refused."""
    frame = supernet.frame
    costs = costs_of(frame, request)
    space = TierSpace(1, costs, tuple(request.amounts.values()))
    for layer, ops in enumerate(costs.layers, start=1):
        if all(inf in cost for cost in ops):
            raise FedloomError(
                "every layer must keep an operation that the device supports",
                f"layer {layer} has none",
                "shorten --unsupported",
            )
    cheapest = costs.cheapest()
    for (unit, most), least in zip(request.amounts.items(), cheapest, strict=True):
        if least > most:
            raise FedloomError(
                f"--limit {unit} must leave at least one path",
                f"it is {most:,.10g}, and the cheapest path has {least:,.10g}",
                "raise it",
            )
    return space


def costs_of(frame: Frame, request: SearchRequest) -> PathCosts:
    """Costs of paths in the units of the limit, in the same order."""
    latency = None
    if request.profile is not None:
        profile = find_profile(request.profile)
        latency = operation_latencies(frame.model(), profile, f"profile {request.profile}")
    return frame.costs(request.amounts, request.unsupported, latency)


# The search


def search(
    path: FilePath | str,
    request: SearchRequest,
    listen: Listener = lambda event: None,
) -> Searched:
    """Find a network of a finished run's supernet within a limit."""
    request.check()
    supernet = Supernet.open(path)
    space = space_within(supernet, request)
    folder = supernet.folder
    if request.tune:
        check_clients_at_hand(folder)
    scoring = scoring_for(supernet, space, request)
    with folder.writing(), folder.lock(), search_folder(folder, request) as place:
        candidates = score_candidates(supernet, space, scoring, request.models, place)
        chosen = candidates.search.picked(candidates.memory, request.pick)
        weights = supernet.frame.part(supernet.state.tensors, as_sub_space(chosen))
        tuned = None
        if request.tune:
            tuned = tune_path(folder, place, supernet.state, chosen, request.tune, listen)
            weights = dict(tuned.weights)
        answer = answer_of(place.name, supernet, request, candidates, chosen, tuned)
        write(folder, answer, path_state(chosen, weights))
    return Searched(folder.path, answer, metric_of(supernet.expected.task.kind))


@contextmanager
def search_folder(folder: RunFolder, request: SearchRequest) -> Iterator[FilePath]:
    """A folder for the search, which is removed again if it stays empty.

    If an earlier search was stopped there, its scores are kept.
    """
    place = folder.path / SEARCHES / free_name(folder.path, request.name)
    place.mkdir(parents=True, exist_ok=True)
    for leftover in place.iterdir():
        if has_scores(leftover):
            continue
        if leftover.is_dir():
            shutil.rmtree(leftover)
        else:
            leftover.unlink()
    try:
        yield place
    finally:
        if not any(place.iterdir()):
            place.rmdir()


@dataclass(frozen=True)
class Scoring:
    """The scores that a search may use, and how it gets others."""

    known: Mapping[Path, Score]
    first: Sequence[Path]  # paths to score before any others
    file: str  # for new scores
    scorer: Callable[[], Scorer]  # created only if something must be scored
    data: ScoringData | None = None  # the samples of all these scores; None: the run's own


def scoring_for(supernet: Supernet, space: TierSpace, request: SearchRequest) -> Scoring:
    if request.data is None:
        return scoring_as_in_the_run(supernet)
    central = open_central_set(supernet.expected, request.data, request.data_dir)
    return scoring_on(central, supernet, space)


def scoring_as_in_the_run(supernet: Supernet) -> Scoring:
    scorer = partial(
        scorer_of,
        supernet.folder,
        supernet.frame,
        supernet.state.tensors,
        supernet.options,
    )
    return Scoring(supernet.scores(), (), SCORES_FILE, scorer)


def scoring_on(central: CentralSet, supernet: Supernet, space: TierSpace) -> Scoring:
    """Scoring on other samples; the run's scores only say which paths to try first."""
    scorer = partial(
        scorer_on,
        central.samples,
        supernet.folder,
        supernet.frame,
        supernet.state.tensors,
        supernet.options,
    )
    known = supernet.scores_in(scores_on(supernet.folder.path, central.about))
    first = best_first(supernet.scores(), space)
    return Scoring(known, first, scores_file(central.about), scorer, central.about)


@dataclass(frozen=True)
class Candidates:
    """The paths within the limit that have a score at the end of a search."""

    search: BudgetSearch
    memory: Memory
    from_scores: int  # number of paths that had a score before
    scored: int  # number of paths that were scored for this search
    data: ScoringData | None


def score_candidates(
    supernet: Supernet,
    space: TierSpace,
    scoring: Scoring,
    models: int | None,
    place: FilePath,
) -> Candidates:
    """Continue from known scores until enough paths within the limit have one."""
    options = supernet.options
    if models is None:
        models = supernet.usual_models()
    settings = SearchSettings(
        models=(models,),
        pool=options.pool,
        sample=options.sample,
        mutation=options.mutation,
    )
    budget_search = BudgetSearch(space, models, settings, supernet.seed, scoring.first)
    memory = budget_search.first_memory(scoring.known)
    from_scores = len(memory.scores)
    scorer: Scorer | None = None
    while paths := budget_search.next_paths(memory):
        if scorer is None:
            scorer = scoring.scorer()
        scores = scorer.scores(paths)
        add_scores(place / scoring.file, rows_of(supernet.frame, scores))
        memory = budget_search.after(memory, scores)
    scored = len(memory.scores) - from_scores
    return Candidates(budget_search, memory, from_scores, scored, scoring.data)


def rows_of(frame: Frame, scores: Mapping[Path, Score]) -> Iterable[ScoredPath]:
    return [row_of(frame, NEW, path, score) for path, score in scores.items()]


# The answer


def answer_of(
    name: str,
    supernet: Supernet,
    request: SearchRequest,
    candidates: Candidates,
    chosen: Path,
    tuned: Tuned | None,
) -> SearchAnswer:
    frame = supernet.frame
    memory = candidates.memory
    space = candidates.search.space
    score = memory.scores[chosen]
    row = row_of(frame, NEW, chosen, score)
    front = []
    for path in front_of(memory, space):
        point = row_of(frame, NEW, path, memory.scores[path])
        front_point = FrontPoint(path=list(point.path), loss=point.loss, macs=point.macs)
        front.append(front_point.replace(accuracy=point.accuracy, **memory.scores[path].beside))
    answer = SearchAnswer(
        name=name,
        limit=request.amounts,
        unsupported=list(request.unsupported),
        pick=request.pick,
        architecture=frame.arch(as_sub_space(chosen)).to_plain(),
        path=list(row.path),
        params=row.params,
        macs=row.macs,
        loss=score.loss,
        accuracy=score.accuracy,
        balanced_accuracy=score.balanced_accuracy,
        auc=score.auc,
        scored=candidates.scored,
        from_scores=candidates.from_scores,
        front=front,
    )
    changes: dict[str, Any] = {}  # fields that not every search has
    head = frame.model(as_sub_space(chosen)).head
    if head is not None:
        changes["head"] = head
    if request.profile is not None:
        changes["profile"] = request.profile
        latency = list(request.amounts).index("latency_ms")
        changes["latency_ms"] = space.costs.of(chosen)[latency]
    if candidates.data is not None:
        changes["data"] = candidates.data
    if tuned is not None:
        changes["tuned"] = TunedPath(
            rounds=tuned.rounds,
            clients=tuned.clients,
            figures=tuned.figures,
            **tuned.beside,
        )
    return answer.replace(**changes)


def write(folder: RunFolder, answer: SearchAnswer, model: State) -> None:
    """Write a search's files, its answer last: a folder with an answer is complete."""
    place = folder.path / SEARCHES / answer.name
    write_whole(place / MODEL, checked_state_chunks(model), durable=True)
    genotype = dict(answer.architecture)
    if answer.head is not None:
        genotype["head"] = answer.head
    search_folder = RunFolder(place)
    search_folder.write_json("architecture.json", genotype)
    picture = pictured(genotype, f"{folder.path.name}: {answer.name}")
    search_folder.write_text(f"architecture{picture.suffix}", picture.content)
    search_folder.write_json(ANSWER, answer.to_json())
