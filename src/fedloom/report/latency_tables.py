"""Device profiles, and what they say of networks, as tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from fedloom.cost.limits import Figures
from fedloom.cost.profile import Profile
from fedloom.report.tables import amount, plain_table
from fedloom.types import Json


def profile_table(profile: Profile, about: str, most: int | None = None) -> Table:
    """A line an operation, the slowest first."""
    entries = sorted(profile.entries, key=lambda entry: -entry.ms)[:most]
    not_shown = len(profile.entries) - len(entries)
    repeats = min(entry.repeats for entry in profile.entries)
    sentences = [
        f"Of one sample on one thread of {profile.machine};",
        f"the mean and the middle half of {repeats} turns or more.",
        f"Measured {profile.made}.",
    ]
    if not_shown:
        sentences.append(f"{not_shown} faster ones are not shown: `fedloom profile show`.")
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
    """A network: what a profile's sum says of it, and what it takes."""

    client: int | None  # whose it is; None: it is no client's own
    figures: Figures  # its latency is the profile's sum
    measured_ms: float
    spread_ms: float
    over: tuple[str, ...]  # limits that it exceeds, by the sum
    model: str | None = None  # what it is called, if it is no client's own

    @property
    def ratio(self) -> float:
        assert self.figures.latency_ms is not None
        return self.figures.latency_ms / self.measured_ms

    @property
    def whose(self) -> str:
        """In a table's cell."""
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
    """A line a client; `limited`: whether they were checked against limits."""
    columns = ["client", "params", "MACs", "sum ms", "measured ms", "spread", "ratio"]
    if limited:
        columns.append("limits")
    meanings = (
        "sum: of the profile's operations",
        "measured: the whole network, one sample, one thread",
        f"their ratio has the median {ratio:.2f}",
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
