"""The terminal's tables of device profiles, and of the latencies that they predict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from fedloom.cost.limits import Figures
from fedloom.cost.profile import Profile
from fedloom.report.numbers import amount
from fedloom.report.tables import plain_table
from fedloom.types import Json


def profile_table(profile: Profile, about: str, most: int | None = None) -> Table:
    """Return a table with one row per operation, the slowest first.

    Only the slowest `most` operations are shown.
    """
    entries = sorted(profile.entries, key=lambda entry: -entry.ms)[:most]
    not_shown = len(profile.entries) - len(entries)
    repeats = min(entry.repeats for entry in profile.entries)
    sentences = [
        f"Times of one sample on one thread of {profile.machine}:",
        f"the mean and the interquartile range (spread) of at least {repeats} repetitions.",
        f"Measured {profile.made}.",
    ]
    if not_shown:
        sentences.append(
            f"{not_shown} faster operations are not shown; `fedloom profile show` lists them."
        )
    columns = ("operation", "channels", "size", "stride", "µs", "spread")
    table = plain_table(about, " ".join(sentences), columns)
    for entry in entries:
        table.add_row(
            entry.op,
            f"{entry.inputs}→{entry.outputs}",
            f"{entry.height}×{entry.width}",
            str(entry.stride),
            f"{1000 * entry.ms:.1f}",
            f"{1000 * entry.spread_ms:.1f}",
        )
    return table


@dataclass(frozen=True)
class LatencyLine:
    """A network's latency: as a sum over the profile's operations, and as measured."""

    client: int | None  # the client that has the network; None: it is not one client's
    figures: Figures  # its latency is the sum over the profile's operations
    measured_ms: float
    spread_ms: float
    over: tuple[str, ...]  # the limits that the network exceeds, judged by the sum
    model: str | None = None  # the network's name, if it is not one client's

    @property
    def ratio(self) -> float:
        assert self.figures.latency_ms is not None
        return self.figures.latency_ms / self.measured_ms

    @property
    def whose(self) -> str:
        """The network's name or its client's number, for a table's cell."""
        return self.model or str(self.client)

    def to_json(self) -> Json:
        name: dict[str, Json] = {"client": self.client}
        if self.model is not None:
            name = {"client": None, "model": self.model}
        return {
            **name,
            **self.figures._asdict(),
            "measured_ms": self.measured_ms,
            "spread_ms": self.spread_ms,
            "ratio": self.ratio,
            "over": list(self.over),
        }


def latency_table(
    title: str,
    lines: Sequence[LatencyLine],
    ratio: float,
    *,
    limited: bool,
) -> Table:
    """Return a table with one row per network.

    `ratio` is the median of the rows' ratios. `limited` adds the column of the verdicts on limits.
    """
    columns = ["client", "params", "MACs", "sum ms", "measured ms", "spread", "ratio"]
    if limited:
        columns.append("limits")
    meanings = (
        "sum: added up from the profile's operations",
        "measured: the whole network, one sample, one thread",
        f"the median ratio of the two is {ratio:.2f}",
    )
    table = plain_table(title, f"{'; '.join(meanings)}.", columns)
    for line in lines:
        cells = [
            line.whose,
            amount(line.figures.params),
            amount(line.figures.macs),
            f"{line.figures.latency_ms:.3f}",
            f"{line.measured_ms:.3f}",
            f"{line.spread_ms:.3f}",
            f"{line.ratio:.2f}",
        ]
        if limited:
            cells.append(verdict(line))
        table.add_row(*cells)
    return table


def verdict(line: LatencyLine) -> str:
    if not line.over:
        return "fits"
    return f"over: {', '.join(line.over)}"
