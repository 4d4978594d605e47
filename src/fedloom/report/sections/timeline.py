"""What happened when, by the simulated clock: one row per cluster, or the slowest clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedloom.records.rows import ClusterRow, MetricsRow, TimeStep
from fedloom.report.figures.timeline import Block, Kind, Lane, Period, Takeover, Timeline, Turn
from fedloom.report.html import Child, Safe
from fedloom.report.numbers import counted
from fedloom.report.parts import figure, section, table
from fedloom.report.sections.spent import spent_by_run
from fedloom.report.story import Story

MOST_ROUNDS = 20  # that are drawn: the last ones
MOST_LANES = 20  # that are drawn: those that took longest
HEADING = "By the simulated clock"
MEANINGS: dict[Kind, str] = {
    "training": "training",
    "transfer": "transfer between members and aggregator",
    "aggregation": "aggregation: between aggregator and server",
    "heartbeat": "unanswered heartbeats: the aggregator is gone",
    "waiting": "waiting for the slowest cluster",
}
FLAT_MEANINGS: dict[Kind, str] = {
    "training": "training",
    "transfer": "transfer from and to the server",
    "waiting": "waiting for the end of the round",
}
NO_TIME = "Computation on servers and aggregators takes no simulated time."


def timeline(story: Story) -> Safe:
    return section("timeline", HEADING, drawing(story), spent_by_run(story))


@dataclass(frozen=True)
class Share:
    """One cluster, or one client, in one round."""

    lane: str
    row: MetricsRow
    names: tuple[str, ...]  # of the aggregators, in the order in which they took over
    steps: Sequence[TimeStep]
    seconds: float

    @property
    def begin(self) -> float:
        assert self.row.simulated is not None
        return self.row.simulated.begin

    @property
    def end(self) -> float:
        assert self.row.simulated is not None
        return self.row.simulated.end

    @property
    def waiting(self) -> float:
        """Seconds spent waiting for slower ones; a rounding error counts as 0."""
        length = self.end - self.begin
        waiting = length - self.seconds
        if waiting <= 1e-9 * max(1.0, self.end):
            return 0.0
        return waiting

    @property
    def is_late(self) -> bool:
        """Whether the round ended before this cluster or client was done."""
        return self.begin + self.seconds > self.end + 1e-9 * max(1.0, self.end)

    def amount(self, kind: Kind) -> float:
        if kind == "waiting":
            return self.waiting
        return sum(step.seconds for step in self.steps if step.doing == kind)

    def turn(self) -> Turn:
        blocks = []
        takeovers = []
        now = self.begin
        replaced = 0
        for step in self.steps:
            end = min(now + step.seconds, self.end)
            if end > now:
                blocks.append(Block(step.doing, now, end))
            now = end
            if step.doing == "heartbeat":
                replaced += 1
                takeovers.append(Takeover(now, self._name(replaced)))
        if self.waiting:
            blocks.append(Block("waiting", now, self.end))
        return Turn(self._in_words(), self._name(0), blocks, takeovers)

    def _name(self, number: int) -> str:
        if number < len(self.names):
            return self.names[number]
        return "nobody"

    def _in_words(self) -> str:
        parts = []
        for kind in MEANINGS:
            seconds = self.amount(kind)
            if seconds:
                parts.append(f"{kind} {seconds:.3g} s")
        aggregators = " → ".join(self.names) or "nobody"
        return f"{self.lane}, round {self.row.round} ({aggregators}): {', '.join(parts)}"


def drawing(story: Story) -> Safe | None:
    rows = [row for row in story.rows if has_steps(row)][-MOST_ROUNDS:]
    if not rows:
        return None
    shares = []
    for row in rows:
        shares += shares_of(story, row)
    lanes = lanes_of(shares)
    shown = [share for share in shares if share.lane in lanes]
    is_clustered = any(row.clusters for row in rows)
    drawn = Timeline(
        key="timeline",
        title="what happened when, by the simulated clock",
        description=spoken(shares, rows),
        lanes=[lane_of(name, shown) for name in lanes],
        periods=[period_of(row) for row in rows],
        meanings=meanings_of(shown, is_clustered=is_clustered),
    )
    heading = "Simulated time of rounds"
    if is_clustered:
        heading = "Simulated time of clusters"
    about = caption(story, rows, lanes, shares, is_clustered=is_clustered)
    return figure("timeline", heading, drawn.draw(), about, numbers(shown, is_clustered))


def has_steps(row: MetricsRow) -> bool:
    """Whether the simulated clock ran in this round and noted what took how long."""
    if row.simulated is None:
        return False
    return bool(row.paces) or any(cluster.steps for cluster in row.clusters)


def shares_of(story: Story, row: MetricsRow) -> list[Share]:
    shares = []
    for cluster in row.clusters:
        names = aggregators_of(story, cluster)
        lane = f"cluster {cluster.cluster}"
        shares.append(Share(lane, row, names, cluster.steps, cluster.seconds))
    for lane, pace in zip(("slowest client", "middle client"), row.paces, strict=False):
        seconds = sum(step.seconds for step in pace.steps)
        shares.append(Share(lane, row, (story.client_name(pace.client),), pace.steps, seconds))
    return shares


def aggregators_of(story: Story, cluster: ClusterRow) -> tuple[str, ...]:
    """Return the names of a cluster's aggregators, in the order in which they took over."""
    clients = list(cluster.replaced)
    if cluster.aggregator is not None:
        clients.append(cluster.aggregator)
    if not clients and story.config is not None and story.config.topology.relay == "server":
        return ("the server",)
    names = [story.client_name(client) for client in clients]
    if cluster.replaced and cluster.aggregator is None:
        names.append("nobody")
    return tuple(names)


def lanes_of(shares: Sequence[Share]) -> list[str]:
    """Return the lanes from top to bottom; of too many, those that took longest."""
    seconds: dict[str, float] = {}
    for share in shares:
        seconds[share.lane] = seconds.get(share.lane, 0.0) + share.seconds
    longest = sorted(seconds, key=lambda lane: -seconds[lane])[:MOST_LANES]
    return sorted(longest, key=lane_order)


def lane_order(lane: str) -> tuple[bool, int, str]:
    """Sort clusters by their numbers, and the slowest client before the median one."""
    kind, _, number = lane.partition(" ")
    if kind == "cluster":
        return False, int(number), ""
    if kind == "slowest":
        return True, 0, lane
    return True, 1, lane


def lane_of(name: str, shares: Sequence[Share]) -> Lane:
    turns = []
    for share in shares:
        if share.lane == name:
            turns.append(share.turn())
    return Lane(name, turns)


def period_of(row: MetricsRow) -> Period:
    assert row.simulated is not None
    return Period(row.round, row.simulated.begin, row.simulated.end)


def meanings_of(shares: Sequence[Share], *, is_clustered: bool) -> dict[Kind, str]:
    """Return the meanings of the kinds that occur."""
    meanings = FLAT_MEANINGS
    if is_clustered:
        meanings = MEANINGS
    present = {}
    for kind, meaning in meanings.items():
        if any(share.amount(kind) > 0 for share in shares):
            present[kind] = meaning
    return present


def spoken(shares: Sequence[Share], rows: Sequence[MetricsRow]) -> str:
    """Say where the time went, for readers who cannot see the drawing."""
    parts = []
    whole = sum(share.seconds + share.waiting for share in shares)
    for kind in MEANINGS:
        seconds = sum(share.amount(kind) for share in shares)
        if seconds and whole:
            parts.append(f"{kind} {100 * seconds / whole:.0f} %")
    return f"{counted(len(rows), 'round')}. Shares of the time: {', '.join(parts)}."


def caption(
    story: Story,
    rows: Sequence[MetricsRow],
    lanes: Sequence[str],
    shares: Sequence[Share],
    *,
    is_clustered: bool,
) -> list[Child]:
    sentences = []
    total = len(story.rows)
    if len(rows) < total:
        sentences.append(f"The last {len(rows)} of {total:,} rounds are shown.")
    if is_clustered:
        sentences.append(
            "One row per cluster, with the time of its slowest member in each hop; the "
            "aggregating client is named above the blocks."
        )
    else:
        sentences.append(
            "For every round, the slowest client whose reply counted and the median one; the "
            "client is named above the blocks."
        )
    all_lanes = {share.lane for share in shares}
    if len(lanes) < len(all_lanes):
        sentences.append(f"The {len(lanes)} slowest of {len(all_lanes)} clusters are shown.")
    if any(share.is_late for share in shares):
        sentences.append("A row that is cut off at the end of its round came too late.")
    if has_gaps(rows):
        sentences.append("In gaps between rounds, no client was available.")
    sentences.append(f"Seconds are simulated, on devices {devices_of(story)}. {NO_TIME}")
    return [" ".join(sentences)]


def has_gaps(rows: Sequence[MetricsRow]) -> bool:
    """Whether a round began later than the one before it ended."""
    end = None
    for row in rows:
        assert row.simulated is not None
        if end is not None and row.simulated.begin > end + 1e-9 * max(1.0, end):
            return True
        end = row.simulated.end
    return False


def devices_of(story: Story) -> str:
    """Name the table of devices that the clock uses."""
    if story.config is None:
        return "of this run"
    return f"`{story.config.devices.table or 'equal'}`"


def numbers(shares: Sequence[Share], is_clustered: bool) -> Safe:
    kinds: list[Kind] = ["training", "transfer", "waiting"]
    working_role = "client"
    if is_clustered:
        kinds = list(MEANINGS)
        working_role = "aggregator"
    rows: list[list[Child]] = []
    for share in shares:
        names = " → ".join(share.names) or "nobody"
        cells: list[Child] = [f"{share.row.round}", share.lane, names]
        for kind in kinds:
            cells.append(f"{share.amount(kind):.4g}")
        cells.append(f"{share.seconds + share.waiting:.4g}")
        rows.append(cells)
    head = ["round", "row", working_role, *kinds, "simulated seconds"]
    return table(head, rows, words=("row", working_role), label="simulated time")
