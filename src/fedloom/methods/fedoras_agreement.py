"""FedorAS: how well the clients' scores agree with the server's, if there are both."""

from __future__ import annotations

from fedloom.data.samples import Samples
from fedloom.methods.fedoras_options import FedorASOptions
from fedloom.methods.fedoras_search import central_scores
from fedloom.metrics.ranks import kendall_tau
from fedloom.searchers.paths import Path
from fedloom.searchers.tier_search import Memory
from fedloom.types import Json, State


def agreement(state: State, server_data: Samples | None, options: FedorASOptions) -> Json:
    """Returns Kendall's tau between both losses of the surviving paths of all tiers.

    It is a measurement, which decides nothing and is not charged to the budget. It is None if
    clients did not score, or if the server has no samples to compare with.
    """
    if not options.searches or not options.asks_clients or server_data is None:
        return None
    memory = Memory.from_plain(state.meta["search"])
    survivors: set[Path] = set()
    for pool in memory.pools.values():
        survivors.update(pool)
    if not survivors:
        return None
    paths = sorted(survivors)
    central = [score.mean_loss for score in central_scores(state, paths, server_data, options)]
    federated = [memory.scores[path].loss for path in paths]
    return {"tau": kendall_tau(federated, central), "clients": state.meta["scorers"]}
