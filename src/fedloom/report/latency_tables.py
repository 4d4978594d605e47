"""Device profiles, and what they say of networks, as tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from fedloom.cost.profile import Profile
from fedloom.report.tables import amount, plain_table


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


def latency_table(checked: Mapping[str, Any]) -> Table:
    """A line a client: what a profile's sum says of its network, and what the network takes."""
    table = plain_table(
        f"{checked['run']} on profile {checked['profile']}",
        f"sum: of the profile's operations; measured: the whole network, one sample, one thread; their ratio has the "
        f"median {checked['ratio']:.2f}.",
        (
            "client",
            "params",
            "MACs",
            "sum ms",
            "measured ms",
            "spread",
            "ratio",
            *(["limits"] if checked["limit"] else []),
        ),
    )
    for row in checked["clients"]:
        verdict = ["over: " + ", ".join(row["over"]) if row["over"] else "fits"] if checked["limit"] else []
        table.add_row(
            str(row["client"]), amount(row["params"]), amount(row["macs"]), f"{row['latency_ms']:.3f}",
            f"{row['measured_ms']:.3f}", f"{row['spread_ms']:.3f}", f"{row['ratio']:.2f}", *verdict,
        )  # fmt: skip
    return table
