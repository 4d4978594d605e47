"""The clusters that a run was asked for: files are read, and what cannot be is refused."""

from __future__ import annotations

from pathlib import Path

from fedloom.config.histograms import NONE
from fedloom.config.models import BY_LABELS, TopologyConfig, is_cluster_file
from fedloom.errors import FedloomError
from fedloom.federation.protocol.clustering import check_assigned, read_clusters


def clusters_read(config: TopologyConfig, population: int) -> TopologyConfig:
    """With the clusters of the file that it names, so that a resume needs it no more."""
    check_histograms(config)
    if config.clusters is None or not is_cluster_file(config.clusters):
        return config
    if config.assigned is not None:
        check_assigned(config.assigned, population, config.clusters)
        return config
    clusters = read_clusters(Path(config.clusters), population)
    assigned = [list(members) for members in clusters]
    return config.model_copy(update={"assigned": assigned})


def check_histograms(config: TopologyConfig) -> None:
    """Clusters by labels need somebody to tell them."""
    if config.clusters in BY_LABELS and config.histograms == NONE:
        raise FedloomError(
            f"topology.histograms must be exact or laplace:E for --clusters {config.clusters}",
            "got none",
            "let clients tell them, or try --clusters updates",
        )
