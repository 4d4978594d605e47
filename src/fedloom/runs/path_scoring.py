"""Scoring paths after a run, on the samples that its own search scored on, or on others.

If the run scored on the server's own set, that set is used; otherwise the samples that its clients
hold back. Clients' scores are summed as in a round, so that old and new scores can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path as FilePath

from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.methods.fedoras_frame import Frame
from fedloom.methods.fedoras_options import FedorASOptions
from fedloom.methods.fedoras_search import part_to_score_on, smallest_part
from fedloom.records.folder import RunFolder
from fedloom.runs.finished import clients_of
from fedloom.runs.loop_settings import server_samples
from fedloom.runs.preparing import Prepared, check_device, reopen
from fedloom.searchers.path_scores import PathScore, score_paths
from fedloom.searchers.paths import Path
from fedloom.searchers.tier_search import Score
from fedloom.threads import one_thread
from fedloom.types import Round, Tensors


@dataclass(frozen=True)
class Scorer:
    """Scores paths with a supernet's weights on several parts of samples, one after the other."""

    frame: Frame
    weights: Tensors
    options: FedorASOptions
    parts: Sequence[Callable[[], Samples]]
    device: str = "cpu"

    def scores(self, paths: Sequence[Path]) -> dict[Path, Score]:
        sub_space = smallest_part(paths)
        model = self.frame.model(sub_space, self.frame.part(self.weights, sub_space))
        totals = [PathScore(0.0, 0, 0) for _ in paths]
        with one_thread():
            for part in self.parts:
                part_scores = score_paths(
                    model,
                    paths,
                    part(),
                    self.options.score_bn,
                    self.device,
                    self.frame.counted_classes,
                )
                for number, score in enumerate(part_scores):
                    totals[number] += score
        scores = {}
        for path, total in zip(paths, totals, strict=True):
            if total.samples == 0:
                raise FedloomError(
                    "paths must be scored on samples",
                    "the clients that score hold none back",
                    "ask only for paths that the run has scored: lower --models",
                )
            scores[path] = Score.of(total)
        return scores


def check_data_at_hand(folder: RunFolder) -> None:
    """Refuse a federation's run, whose samples never leave its sites."""
    if folder.config().is_federated:
        raise FedloomError(
            "new paths must be scored on samples",
            f"{folder.path} ran in a federation, whose server has none",
            "add --data with samples that you have, or lower --models to what the run has scored",
        )


def check_clients_at_hand(folder: RunFolder) -> None:
    """Refuse a federation's run, whose sites do nothing more after its end."""
    if folder.config().is_federated:
        raise FedloomError(
            "--tune must be used with a run whose clients' samples are at hand",
            f"{folder.path} ran in a federation, whose server has none",
            "leave --tune out",
        )


def scorer_of(
    folder: RunFolder,
    frame: Frame,
    weights: Tensors,
    options: FedorASOptions,
) -> Scorer:
    """A scorer on a finished run's own samples. This opens its data."""
    check_data_at_hand(folder)
    prepared = reopen(folder)
    device = prepared.config.engine.device
    parts = parts_to_score_on(folder.path, prepared, options)
    return Scorer(frame, weights, options, parts, device)


def scorer_on(
    samples: Samples,
    folder: RunFolder,
    frame: Frame,
    weights: Tensors,
    options: FedorASOptions,
) -> Scorer:
    """A scorer for a finished run on other samples; the run's data is not needed."""
    device = folder.config().engine.device
    check_device(device)
    return Scorer(frame, weights, options, [lambda: samples], device)


def parts_to_score_on(
    run: FilePath,
    prepared: Prepared,
    options: FedorASOptions,
) -> list[Callable[[], Samples]]:
    clients_data = clients_of(prepared)
    if options.score != "federated":
        server_data = server_samples(prepared, clients_data)
        if server_data is None:
            rule = "a run that scored on the server's own set must still have it"
            raise FedloomError(rule, f"{run}/split.json has none", "restore it, or run it again")
        part = part_to_score_on(server_data, options.score_samples, prepared.config.seed)
        return [lambda: part]

    def held_back(client: int) -> Samples:
        data = clients_data.client(client, prepared.hold)
        return data.train.split(options.train_share)[1]

    parts: list[Callable[[], Samples]] = []
    for client in scoring_clients(prepared, options):
        parts.append(partial(held_back, client))
    return parts


def scoring_clients(prepared: Prepared, options: FedorASOptions) -> tuple[int, ...]:
    """A cohort of as many clients as scored a generation of the run."""
    clients = range(len(prepared.split))
    share = prepared.config.budget.participation
    if options.score_clients is not None:
        share = min(1.0, options.score_clients / len(clients))
    draw = Round(0, 0.0, 1.0, clients, share, prepared.config.seed)
    return draw.cohort()
