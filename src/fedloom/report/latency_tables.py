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
    left = len(profile.entries) - len(entries)
    table = plain_table(
        about,
        f"Of one sample on one thread of {profile.machine}; the median and the middle half of "
        f"{min(entry.repeats for entry in profile.entries)} turns or more. Measured {profile.made}."
        + (f" {left} faster ones are not shown: `fedloom profile show`." if left else ""),
        ("operation", "channels", "size", "stride", "µs", "spread"),
    )
    for entry in entries:
        table.add_row(
            entry.op, f"{entry.inputs}→{entry.outputs}", f"{entry.height}×{entry.width}", str(entry.stride),
            f"{1000 * entry.ms:.1f}", f"{1000 * entry.spread_ms:.1f}",
        )  # fmt: skip
    return table


@dataclass(frozen=True)
class LatencyLine:
    """One client's network: what a profile's sum says of it, and what it takes."""

    client: int
    figures: Figures  # its latency is the profile's sum
    measured_ms: float
    spread_ms: float
    over: tuple[str, ...]  # limits that it exceeds, by the sum

    @property
    def ratio(self) -> float:
        assert self.figures.latency_ms is not None
        return self.figures.latency_ms / self.measured_ms

    def to_json(self) -> Json:
        rest = {"measured_ms": self.measured_ms, "spread_ms": self.spread_ms, "ratio": self.ratio}
        return {"client": self.client, **self.figures._asdict(), **rest, "over": list(self.over)}


def latency_table(title: str, lines: Sequence[LatencyLine], ratio: float, *, limited: bool) -> Table:
    """A line a client; `limited`: whether they were checked against limits."""
    columns = ["client", "params", "MACs", "sum ms", "measured ms", "spread", "ratio"]
    if limited:
        columns.append("limits")
    table = plain_table(
        title,
        f"sum: of the profile's operations; measured: the whole network, one sample, one thread; their ratio has the "
        f"median {ratio:.2f}.",
        columns,
    )
    for line in lines:
        cells = [
            str(line.client), amount(line.figures.params), amount(line.figures.macs),
            f"{line.figures.latency_ms:.3f}", f"{line.measured_ms:.3f}", f"{line.spread_ms:.3f}", f"{line.ratio:.2f}",
        ]  # fmt: skip
        if limited:
            cells.append("over: " + ", ".join(line.over) if line.over else "fits")
        table.add_row(*cells)
    return table
