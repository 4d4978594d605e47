"""The loop's settings for a prepared run."""

from __future__ import annotations

import hashlib
import os

import numpy as np
import torch

from fedloom.data.mapped_clients import MappedClients
from fedloom.data.parts import size_of_held
from fedloom.data.samples import Samples
from fedloom.federation.server.settings import Registered, Settings
from fedloom.methods import recipe
from fedloom.runs.attendance import attendance_in
from fedloom.runs.clusters import topology_of
from fedloom.runs.preparing import Prepared, pooled_share


def settings_of(prepared: Prepared) -> Settings:
    engine = prepared.config.engine
    budget = prepared.config.budget
    evaluate = prepared.config.evaluate
    clock = prepared.config.clock
    norm_bound = None
    if engine.norm_bound != "off":
        norm_bound = engine.norm_bound
    return Settings(
        experiment=experiment_id(prepared),
        task=prepared.task,
        population=len(prepared.split),
        rounds=budget.rounds,
        unit=budget.equal,
        amount=budget.amount,
        participation=budget.participation,
        min_replies=engine.min_replies or 1,
        lost_state=engine.lost_state,
        deadline=engine.deadline,
        max_weight_share=engine.max_weight_share,
        evaluate_every=evaluate.every or max(1, budget.rounds // 20),
        evaluate_clients=evaluate.clients,
        select=evaluate.select,
        judges_reported=evaluate.hold_back,
        macs_by_formula=macs_by_formula(prepared),
        names=names_of(prepared),
        registered=registered(prepared),
        tiers=prepared.tiers,
        devices=prepared.devices,
        phases=prepared.config.topology.phases,
        attendance=attendance_in(
            clock,
            len(prepared.split),
            prepared.config.seed,
            topology_of(prepared.config, prepared.task).hops,
        ),
        overselect=clock.overselect,
        round_deadline=clock.round_deadline,
        limits=budget.limits or {},
        norm_bound=norm_bound,
        histograms=prepared.config.topology.histogram_rule,
    )


def macs_by_formula(prepared: Prepared) -> bool:
    """Whether the method computes MACs, as the sites of a federation do not report theirs."""
    return prepared.config.is_federated and recipe(prepared.task.method).has_macs_formula


def registered(prepared: Prepared) -> list[Registered]:
    """Every client's numbers of samples, by the split that the run began with."""
    totals = np.diff(prepared.split.offsets)
    counts = []
    for total, tests in zip(totals.tolist(), prepared.split.tests.tolist(), strict=True):
        outside_test = total - tests
        train = outside_test - size_of_held(outside_test, prepared.hold)
        counts.append(Registered(train, total))
    return counts


def names_of(prepared: Prepared) -> dict[int, str]:
    """The clients' names, if each client is a site."""
    if prepared.split.partition != "sites":
        return {}
    return dict(enumerate(prepared.source.group_names))


def experiment_id(prepared: Prepared) -> str:
    """An identifier that is the same for the same experiment, so that equal runs send equal bytes.

    It is computed from the text of the run's own config.toml, so that no later version changes it:
    a federation's sites store their states under it.
    """
    written = prepared.written
    if written is None:  # a new run, which will write exactly this text
        written = prepared.config.to_toml().encode()
    return hashlib.sha256(written + prepared.split.hash.encode()).hexdigest()[:16]


def worker_count(workers: int | None) -> int:
    """The number of worker processes: by default one per core that this process may use."""
    if workers is None:
        return len(os.sched_getaffinity(0))
    return workers


def server_samples(prepared: Prepared, clients_data: MappedClients) -> Samples | None:
    """The samples of a simulation's server: its own set, or the ends of all clients' parts."""
    share = pooled_share(prepared)
    if share is None:
        return clients_data.server()
    ends = []
    for client in range(len(clients_data)):
        _, end = clients_data.client(client, prepared.hold).train.split(1.0 - share)
        ends.append(end)
    return Samples(torch.cat([end.x for end in ends]), torch.cat([end.y for end in ends]))
