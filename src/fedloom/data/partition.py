"""Who holds which samples: `name:value[+transform:…]`, for example `dirichlet:0.2`.

A partition is a function that names one owner a sample, so every sample is dealt out exactly once by
construction. One that is added here gets an entry in `PARTITIONS` and nothing else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fedloom.data.sources import Source
from fedloom.errors import FedloomError, unknown
from fedloom.rng import rng

DRAWS = 1000  # of a whole partition, before giving up
TRIES = 20  # of each setting that an error might suggest
ALPHAS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0)  # an error suggests one of these


@dataclass(frozen=True)
class Rule:
    """A parsed `--partition`; `str` gives its one canonical spelling."""

    name: str
    value: float | None = None

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}:{str(self.value).removesuffix('.0')}"


@dataclass(frozen=True)
class Ask:
    """What a partition decides from."""

    rule: Rule
    source: Source
    indices: np.ndarray  # sorted: the samples to deal out
    clients: int | None
    seed: int
    min_samples: int

    @property
    def must(self) -> str:
        each = f"each of {self.clients} clients at least {max(1, self.min_samples)} samples"
        return f"`--partition {self.rule}` must give {each}"


@dataclass(frozen=True)
class Kind:
    about: str  # one line for `fedloom list partitions`
    value: Callable[[str, str | None], float | None]  # of the whole text and its value: the checked value
    owners: Callable[[Ask], tuple[np.ndarray, int]]  # the client of each of `indices`, and how many clients


def partition(
    source: Source, indices: np.ndarray, clients: int | None, text: str, seed: int, min_samples: int
) -> list[np.ndarray]:
    """Each client's samples, sorted. `clients` may be None for `sites`, which brings its own number."""
    rule = parse(text)
    ask = Ask(rule, source, np.sort(indices), clients, seed, min_samples)
    owner, count = PARTITIONS[rule.name].owners(ask)
    grouped = ask.indices[np.argsort(owner, kind="stable")]  # stable: sorted within each client
    return np.split(grouped, np.cumsum(np.bincount(owner, minlength=count))[:-1])


def parse(text: str) -> Rule:
    first, *transforms = re.split(r"\+(?=[^\d])", text.strip())  # 1e+3 is a number
    name, colon, value = first.partition(":")
    if name not in PARTITIONS:
        raise unknown("--partition", name, PARTITIONS)
    if transforms:
        found = f"{transforms[0]!r} is none: no transform exists yet"
        raise FedloomError(f"`--partition {text}` must name known transforms after +", found, f"try {first}")
    return Rule(name, PARTITIONS[name].value(text, value if colon else None))


def no_value(text: str, value: str | None) -> None:
    if value is not None:
        must = f"`--partition {text}` must have no value"
        raise FedloomError(must, f"got {value!r}", f"try {text.partition(':')[0].strip()}")


def concentration(text: str, value: str | None) -> float:
    must = f"`--partition {text}` must have a concentration above 0"
    try:
        alpha = float(value or "")
    except ValueError:
        found = f"got {value!r}, which is no number" if value else "has none"
        raise FedloomError(must, found, "try dirichlet:0.5") from None
    if not (alpha > 0 and math.isfinite(alpha)):
        todo = "try iid" if alpha == math.inf else "try dirichlet:0.5"
        raise FedloomError(must.replace("above 0", "above 0 and finite"), f"got {value}", todo)
    return alpha


def client_count(ask: Ask) -> int:
    """The number of clients, if there are samples enough for so many."""
    clients, samples = ask.clients, len(ask.indices)
    if clients is None or clients < 1:
        must = f"`--partition {ask.rule}` must have at least 1 client"
        raise FedloomError(must, f"got {clients}", "give --clients")
    least = max(1, ask.min_samples)
    if clients * least > samples:
        most = samples // least
        todo = f"try {most} client{'s' * (most > 1)} or fewer" if most else f"lower min_samples to {samples} or less"
        raise FedloomError(ask.must, f"there are {samples} samples", todo)
    return clients


def iid(ask: Ask) -> tuple[np.ndarray, int]:
    """Equal sizes, but for one sample, in random order."""
    clients = client_count(ask)
    turns = np.arange(len(ask.indices)) % clients
    return rng(ask.seed, "partition", "iid").permutation(turns), clients


def sites(ask: Ask) -> tuple[np.ndarray, int]:
    """Every site of the data is one client."""
    names, todo = ask.source.group_names, "leave --clients out"
    if ask.source.groups is None:
        must = "`--partition sites` must have data that comes in sites"
        todo = "give a folder with one .npz a site as --data"
        raise FedloomError(must, f"{ask.source.name} has none", todo)
    if ask.clients not in (None, len(names)):
        must = f"`--partition sites` must have one client a site, {len(names)} in all"
        raise FedloomError(must, f"got {ask.clients}", todo)
    owner = ask.source.groups[ask.indices]
    sizes = np.bincount(owner, minlength=len(names))
    if sizes.min() < ask.min_samples:
        must = f"each site must have at least {ask.min_samples} samples"
        found = f"{names[sizes.argmin()]} has {sizes.min()}"
        raise FedloomError(must, found, "leave this site out or lower min_samples")
    return owner, len(names)


def dirichlet(ask: Ask) -> tuple[np.ndarray, int]:
    """Label skew by class (Hsu et al. 2019, unbalanced as in FedNAS): each class is cut by its own Dir(α)."""
    clients, alpha = client_count(ask), ask.rule.value
    assert alpha is not None  # `concentration` gave one
    sizes, made = draw(ask, clients, alpha, DRAWS)
    if sizes is None:
        raise FedloomError(ask.must, f"none of {made} draws did", f"try {fitting(ask, clients, alpha)}")
    order = rng(ask.seed, "partition", "order").permutation(len(ask.indices))
    y = ask.source.y[ask.indices]
    by_class = order[np.argsort(y[order], kind="stable")]  # class after class, shuffled within each
    owner = np.empty(len(y), np.int64)
    owner[by_class] = np.repeat(np.tile(np.arange(clients), len(sizes)), sizes.ravel())
    return owner, clients


def draw(ask: Ask, clients: int, alpha: float, draws: int) -> tuple[np.ndarray | None, int]:
    """The sizes [class, client] of the first draw in which nobody falls short, and how many were made."""
    _, totals = np.unique(ask.source.y[ask.indices], return_counts=True)
    alpha = min(max(alpha, 1e-12), 1e12)  # beyond these the shares are the same but float64 gives out
    fewest = clients
    for made in range(draws):
        shares = rng(ask.seed, "partition", "dirichlet", made).dirichlet(np.full(clients, alpha), len(totals))
        cuts = np.floor(np.cumsum(shares, axis=1) * totals[:, None]).astype(np.int64)
        cuts[:, -1] = totals  # against a cumulated share of 1 − 1e-16
        sizes = np.diff(cuts, axis=1, prepend=0)
        short = int((sizes.sum(axis=0) < ask.min_samples).sum())
        if short == 0:
            return sizes, made + 1
        fewest = min(fewest, short)
        if made >= 4 and fewest > 50:  # about Poisson: none short has odds near e^-50, so save minutes
            return None, made + 1
    return None, draws


def fitting(ask: Ask, clients: int, alpha: float) -> str:
    """Settings near this one that do fit: they were drawn here with the same seed."""
    fits, fails = 1, clients  # one client always fits
    while fails - fits > 1:
        middle = (fits + fails) // 2
        fits, fails = (middle, fails) if draw(ask, middle, alpha, TRIES)[0] is not None else (fits, middle)
    larger = (a for a in ALPHAS if a > alpha and draw(ask, clients, a, TRIES)[0] is not None)
    found = next(larger, None)
    fewer = f"{fits} client{'s' * (fits > 1)}"
    return fewer if found is None else f"{fewer} or {Rule('dirichlet', found)}"


PARTITIONS: Mapping[str, Kind] = {
    "iid": Kind("equal random shares", no_value, iid),
    "dirichlet": Kind(
        "dirichlet:ALPHA, label skew; the smaller ALPHA the fewer classes a client has", concentration, dirichlet
    ),
    "sites": Kind("one npz file of the folder a client", no_value, sites),
}
