"""searches/NAME/ in a run's folder: the result of `fedloom search` within a new limit.

search.json      the answer                        scores.jsonl     paths that were scored for it
model.state      the network's weights             architecture.*   the network, and its drawing
metrics.jsonl    rounds of --tune, if there were any
scores-DIGEST.jsonl   like scores.jsonl, but on the samples of --data with this digest

The answer is written last: a folder without it belongs to a search that was stopped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

from fedloom import reading
from fedloom.errors import FedloomError, unknown
from fedloom.reading import Unreadable
from fedloom.records.record import Count, Figure, PositiveCount, Record
from fedloom.records.result import FrontPoint, Spread
from fedloom.records.scores import SCORES_FILE, ScoredPath, read_scores
from fedloom.types import Json

SEARCHES = "searches"
ANSWER = "search.json"
MODEL = "model.state"
DIGITS = 16  # of a digest that is part of a file's name


class TunedPath(Record):
    """The figures of the path's network after training, on the clients' test parts."""

    rounds: PositiveCount
    clients: Count  # clients that can run it, and trained it
    figures: Spread  # of the run's metric, over all clients
    balanced_accuracy: Figure | None = None  # mean over them; None: text, or unknown
    auc: Figure | None = None  # likewise, where there are two classes


class ScoringData(Record):
    """The samples of --data. Scores on other samples are not comparable with scores on these."""

    name: str
    samples: PositiveCount
    digest: str  # of the samples and their labels, as the network sees them


class SearchAnswer(Record):
    """The content of search.json."""

    name: str
    limit: dict[str, Figure]  # the most that the network may cost, by unit
    profile: str | None = None  # the profile on which latencies are based
    unsupported: list[str]  # operations that the network may not have
    pick: str | int  # which path of the front: best, knee, or its number
    architecture: Json
    head: str | None = None  # what the classifier gets of the last map; None: there is no choice
    path: list[str]  # names of operations, by layer
    params: Count
    macs: Count
    latency_ms: Figure | None = None
    loss: Figure  # per sample, with the supernet's weights
    accuracy: Figure
    # None: the data is text, there is one class, clients scored it in the run, or an earlier
    # version wrote it.
    balanced_accuracy: Figure | None = None
    auc: Figure | None = None  # likewise, where there are two classes
    scored: Count  # paths that were scored for this search
    from_scores: Count  # paths within the limit whose scores were known before
    data: ScoringData | None = None  # the samples of all scores; None: those of the run's scores
    front: list[FrontPoint]
    tuned: TunedPath | None = None  # None: the network has the supernet's weights

    @classmethod
    def read(cls, path: Path) -> SearchAnswer:
        """Read the file. Raises Unreadable."""
        raw = reading.read_json(path)
        if not isinstance(raw, dict):
            raise Unreadable("it is not an object of JSON")
        return cls.checked(raw, names={})


def searches_in(run: Path) -> list[str]:
    """The names of finished searches."""
    return sorted(answer.parent.name for answer in (run / SEARCHES).glob(f"*/{ANSWER}"))


def folder_of_search(run: Path, name: str) -> Path:
    """The folder of a finished search of this name."""
    names = searches_in(run)
    if name in names:
        return run / SEARCHES / name
    if not names:
        rule = "--search must name a search of the run"
        advice = f"make one: `fedloom search {run} --limit macs=…`"
        raise FedloomError(rule, f"got {name!r}, and {run} has none", advice)
    raise unknown(f"--search of {run}", name, names)


def read_answer(run: Path, name: str) -> SearchAnswer:
    path = folder_of_search(run, name) / ANSWER
    try:
        return SearchAnswer.read(path)
    except Unreadable as error:
        rule = f"{path} must be the answer of a search"
        raise FedloomError(rule, str(error), "search again") from None


def all_scores(run: Path) -> list[ScoredPath]:
    """The scores of the run itself and of all searches on its samples, each path once.

    Scores on the samples of --data are not among them.
    """
    files = [run / SCORES_FILE, *sorted((run / SEARCHES).glob(f"*/{SCORES_FILE}"))]
    return rows_in(files)


def scores_on(run: Path, data: ScoringData) -> list[ScoredPath]:
    """The scores that searches in a run got on these samples."""
    return rows_in(sorted((run / SEARCHES).glob(f"*/{scores_file(data)}")))


def scores_file(data: ScoringData) -> str:
    """The name of a file with scores on these samples."""
    return f"scores-{data.digest[:DIGITS]}.jsonl"


def has_scores(file: Path) -> bool:
    """Whether a file of a search holds scores, on any samples."""
    return file.name == SCORES_FILE or fnmatch(file.name, "scores-*.jsonl")


def rows_in(files: Iterable[Path]) -> list[ScoredPath]:
    """The rows of these files, each path once."""
    by_path: dict[tuple[str, ...], ScoredPath] = {}
    for file in files:
        for row in read_scores(file):
            by_path.setdefault(row.path, row)
    return list(by_path.values())


def free_name(run: Path, suggestion: str) -> str:
    """The suggested name, with a number appended if a finished search has it already."""
    name = re.sub(r"[^\w.=,+-]", "_", suggestion)
    taken = searches_in(run)
    candidate = name
    number = 2
    while candidate in taken:
        candidate = f"{name}-{number}"
        number += 1
    return candidate
