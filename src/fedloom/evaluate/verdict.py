"""What a leaderboard comes to, in one plain sentence."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from fedloom.metrics.metric import Metric
from fedloom.records.auto import ClientWinner, LeaderboardRow
from fedloom.records.decision import Decision
from fedloom.records.result import RunResult

CONTROL = "local-adaptation"
IN_WORDS = {CONTROL: "FedAvg with fine-tuning", "fedavg": "FedAvg"}
NETWORKS = {"cnn": "CNN", "lstm": "LSTM", "resnet18": "ResNet-18", "mlp": "MLP"}
WIDTHS = {1.0: "full-width", 0.5: "half-width"}
FINE_TUNING = "fine-tuning"  # the decision of that name, and what it chose where it did not pay
ONE_NETWORK = "one network"
MOST_NAMED = 5  # clients that are listed one by one


def verdict(
    leaderboard: Sequence[LeaderboardRow],
    clients: Sequence[ClientWinner],
    control: str,
    words: Mapping[str, str],
    decisions: Sequence[Decision],
    metric: Metric,
) -> str:
    """`words`: what a sentence calls a contestant, by its name. `decisions`: of the winner."""
    winner = next(row for row in leaderboard if row.chosen)
    by_name = {row.name: row for row in leaderboard}
    figure = f"{metric.text(winner.test.mean)}{metric.unit}"
    sentence = f"Use {words[winner.name]}: {figure}"
    named = {winner.name, control}
    second = runner_up(leaderboard, control)
    if winner.name == control and second is not None:
        named.add(second.name)
        sentence += f"; {words[second.name]} is {beside_control(second, 'it', metric)}"
        sentence += share_of_macs(second, winner)
    elif winner.name != control:
        beaten = words[control]
        if by_name[control].fits is False:
            beaten += " (over the limit)"
        sentence += f", {beside_control(winner, beaten, metric)}"
        sentence += share_of_macs(winner, by_name[control])
    return f"{sentence}{of_others(leaderboard, clients, named, words, decisions)}"


def beside_control(row: LeaderboardRow, control: str, metric: Metric) -> str:
    """`4.6 points above FedAvg with fine-tuning [2.8, 6.4]`."""
    if row.to_control is None:
        return f"which cannot be compared with {control}"
    gap = row.to_control.mean
    points = "points"
    if not metric.counts_answers:
        points = metric.name
    distance = f"{metric.text(abs(gap))} {points}"
    side = side_of(gap, metric)
    ends = row.to_control.interval
    if ends is None:
        return f"{distance} {side} {control}"
    low, high = sorted(abs_ends(ends, gap))
    interval = f"[{metric.text(low)}, {metric.text(high)}]"
    if ends[0] <= 0 <= ends[1]:
        return f"{distance} {side} {control} {interval}, which may be chance"
    return f"{distance} {side} {control} {interval}"


def side_of(gap: float, metric: Metric) -> str:
    if not metric.lower_is_better:
        return "above" if gap >= 0 else "below"
    return "higher (worse) than" if gap >= 0 else "lower (better) than"


def abs_ends(ends: Sequence[float], gap: float) -> list[float]:
    """An interval as a distance in the direction of the gap."""
    if gap >= 0:
        return list(ends)
    return [-end for end in ends]


def share_of_macs(row: LeaderboardRow, control: LeaderboardRow) -> str:
    if not row.macs or not control.macs:
        return ""
    percent = round(100 * row.macs / control.macs)
    if percent == 100:
        return ""
    if percent == 0:
        return ", at less than 1 % of its MACs"
    return f", at {percent} % of its MACs"


def runner_up(leaderboard: Sequence[LeaderboardRow], control: str) -> LeaderboardRow | None:
    """The best of those that are not the control."""
    for row in leaderboard:
        if row.name != control:
            return row
    return None


def of_others(
    leaderboard: Sequence[LeaderboardRow],
    clients: Sequence[ClientWinner],
    named: Collection[str],
    words: Mapping[str, str],
    decisions: Sequence[Decision],
) -> str:
    """For whom another model than the common one is better, or that there is nobody.

    `named`: contestants of which the sentence has told already.
    """
    winner = next(row.name for row in leaderboard if row.chosen)
    chosen: dict[str, list[int]] = {}
    for client in clients:
        if client.chosen != winner:
            chosen.setdefault(client.chosen, []).append(client.client)
    parts = []
    for name, numbers in chosen.items():
        parts.append(f"{clients_in_words(numbers)} with {words[name]}")
    if parts:
        return f"; decisively better on validation: {', '.join(parts)}"
    beaten = []
    for decision in decisions:
        if decision.decision == FINE_TUNING and decision.chosen == ONE_NETWORK:
            beaten.append("personal networks")
    for row in leaderboard:
        if row.name not in named and row.fits is not False:
            beaten.append(words[row.name])
    if not beaten:
        return ""
    return f"; {', '.join(beaten)} gained nothing here"


def clients_in_words(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"client {numbers[0]}"
    if len(numbers) > MOST_NAMED:
        return f"{len(numbers)} clients"
    listed = ", ".join(map(str, numbers[:-1]))
    return f"clients {listed} and {numbers[-1]}"


def in_words(name: str, result: RunResult) -> str:
    """A contestant in a sentence: the network that it chose, if it decided on a size."""
    size = chosen_size(result.decisions)
    if size is None and len(result.options.get("sizes", ())) == 1:  # there was nothing to decide
        size = width_of(result)
    if size is None:
        return IN_WORDS.get(name, name)
    network = network_of(result)
    width = WIDTHS.get(size, f"{size:g}-width")
    sentence = f"the {width} {NETWORKS.get(network, network)}"
    if result.options.get("prior") == "on" and foretells_classes(result):
        sentence += " with the client prior"
    return sentence


def foretells_classes(result: RunResult) -> bool:
    """Only they have a prior; a federation's server may not know what its sites have."""
    return result.input is None or result.input.kind != "regression"


def network_of(result: RunResult) -> str:
    """By the clients' architectures, or by the options of a federation, whose sites do not tell."""
    for client in result.clients:
        name, _, _ = str(client.architecture).rpartition(":")
        if name:
            return name
    return str(result.options.get("network", "network"))


def width_of(result: RunResult) -> float | None:
    """Of the clients' network, if its name tells: `cnn:0.5`."""
    for client in result.clients:
        _, _, width = str(client.architecture).rpartition(":")
        try:
            return float(width)
        except ValueError:
            return None
    return None


def chosen_size(decisions: Sequence[Decision]) -> float | None:
    """The width that the last decision on it left; None: there was none to decide on."""
    size = None
    for decision in decisions:
        if decision.decision.partition(",")[0] != "size":
            continue
        try:
            size = float(decision.chosen)
        except ValueError:  # several are left: a later decision chooses among them
            size = None
    return size
