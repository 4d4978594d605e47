"""Sums up a leaderboard in one plain sentence."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from fedloom.metrics.metric import Metric
from fedloom.records.auto import ClientWinner, LeaderboardRow
from fedloom.records.decision import Decision
from fedloom.records.result import RunResult
from fedloom.registry import CELLS, SPACE
from fedloom.spaces import open_space

CONTROL = "local-adaptation"
IN_WORDS = {
    CONTROL: "FedAvg with fine-tuning",
    "fedavg": "FedAvg",
    "auto-tiers": "one network in a width for each tier",
}
NETWORKS = {"cnn": "CNN", "lstm": "LSTM", "resnet18": "ResNet-18", "mlp": "MLP"}
WIDTHS = {1.0: "full-width", 0.5: "half-width"}
FINE_TUNING = "fine-tuning"  # the name of a decision …
ONE_NETWORK = "one network"  # … and what it chose where fine-tuning did not pay
MOST_NAMED = 5  # clients that are listed one by one


def verdict(
    leaderboard: Sequence[LeaderboardRow],
    clients: Sequence[ClientWinner],
    control: str,
    words: Mapping[str, str],
    decisions: Sequence[Decision],
    metric: Metric,
) -> str:
    """Returns the sentence.

    `words` has, by a contestant's name, what the sentence calls it. `decisions` are the winner's.
    """
    winner = next(row for row in leaderboard if row.chosen)
    by_name = {row.name: row for row in leaderboard}
    sentence = f"Use {words[winner.name]}: {figure_in_words(winner.test.mean, metric)}"
    named = {winner.name, control}
    second = runner_up(leaderboard, control)
    if winner.name == control and second is not None:
        named.add(second.name)
        difference = beside_control(second, "it", metric, len(clients))
        sentence += f"; {with_limit(second, words)} is {difference}"
        sentence += share_of_macs(second, winner)
    elif winner.name != control:
        beaten = by_name[control]
        difference = beside_control(winner, with_limit(beaten, words), metric, len(clients))
        sentence += f", {difference}"
        sentence += share_of_macs(winner, beaten)
    sentence += about_others(leaderboard, clients, named, words, decisions)
    return sentence


def with_limit(row: LeaderboardRow, words: Mapping[str, str]) -> str:
    """Returns a contestant's name in words, and says if its networks exceed the limit."""
    if row.fits is False:
        return f"{words[row.name]} (over the limit)"
    return words[row.name]


def figure_in_words(figure: float | None, metric: Metric) -> str:
    """Returns such as `66.1 %` or `RMSE 0.8203`: a number without a unit says what it measures."""
    if metric.unit:
        return f"{metric.text(figure)}{metric.unit}"
    return f"{metric.title} {metric.text(figure)}"


def beside_control(row: LeaderboardRow, control: str, metric: Metric, clients: int) -> str:
    """Returns such as `4.6 points above FedAvg with fine-tuning [2.8, 6.4]`.

    With one client there is no interval, and neither if all clients differ by the same.
    """
    if row.to_control is None:
        return f"which cannot be compared with {control}"
    gap = row.to_control.mean
    unit = "points"
    if not metric.counts_answers:
        unit = metric.title
    comparison = f"{metric.text(abs(gap))} {unit} {side_of(gap, metric)} {control}"
    if metric.text(abs(gap)) == metric.text(0.0):
        comparison = f"level with {control}"
    ends = row.to_control.interval
    if ends is None and clients == 1:
        return f"{comparison} at the only client, which may be chance"
    if ends is None:
        return comparison
    low, high = sorted(ends_as_distances(ends, gap))
    interval = f"[{metric.text(low)}, {metric.text(high)}]"
    if ends[0] <= 0 <= ends[1]:
        return f"{comparison} {interval}, which may be chance"
    return f"{comparison} {interval}"


def side_of(gap: float, metric: Metric) -> str:
    if metric.lower_is_better:
        if gap >= 0:
            return "higher (worse) than"
        return "lower (better) than"
    if gap >= 0:
        return "above"
    return "below"


def ends_as_distances(ends: Sequence[float], gap: float) -> list[float]:
    """Returns the ends of an interval as distances in the direction of the gap."""
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
    """Returns the best contestant that is not the control."""
    for row in leaderboard:
        if row.name != control:
            return row
    return None


def about_others(
    leaderboard: Sequence[LeaderboardRow],
    clients: Sequence[ClientWinner],
    named: Collection[str],
    words: Mapping[str, str],
    decisions: Sequence[Decision],
) -> str:
    """Names the clients for which another model is better than the common one.

    If there are none, it names the contestants that gained nothing, except those in `named`, which
    the sentence has mentioned already.
    """
    winner = next(row.name for row in leaderboard if row.chosen)
    clients_by_choice: dict[str, list[int]] = {}
    for client in clients:
        if client.chosen != winner:
            clients_by_choice.setdefault(client.chosen, []).append(client.client)
    exceptions = []
    for name, numbers in clients_by_choice.items():
        exceptions.append(f"{clients_in_words(numbers)} with {words[name]}")
    if exceptions:
        return f"; decisively better on validation: {', '.join(exceptions)}"
    without_gain = []
    for decision in decisions:
        if was_tried_in_vain(decision):
            without_gain.append("personal networks")
    for row in leaderboard:
        if row.name not in named and row.fits is not False:
            without_gain.append(words[row.name])
    if not without_gain:
        return ""
    return f"; {', '.join(without_gain)} gained nothing here"


def was_tried_in_vain(decision: Decision) -> bool:
    """Whether fine-tuning was compared on validation samples and gained nothing.

    If the clients hold no samples back, nothing was compared.
    """
    if decision.decision != FINE_TUNING or decision.chosen != ONE_NETWORK:
        return False
    return not isinstance(decision.counts, Mapping) or decision.counts.get("samples") != 0


def clients_in_words(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"client {numbers[0]}"
    if len(numbers) > MOST_NAMED:
        return f"{len(numbers)} clients"
    listed = ", ".join(map(str, numbers[:-1]))
    return f"clients {listed} and {numbers[-1]}"


def in_words(name: str, result: RunResult) -> str:
    """Returns what a sentence calls a contestant: its network, if it decided on a size."""
    size = chosen_size(result.decisions)
    if size is None and len(result.options.get("sizes", ())) == 1:  # there was nothing to decide
        size = width_of(result)
    if size is None:
        return IN_WORDS.get(name, name)
    width = WIDTHS.get(size, f"{size:g}-width")
    network = f"the {width} {network_of(result)}"
    if result.options.get("prior") == "on" and predicts_classes(result):
        network += " with the client prior"
    return network


def predicts_classes(result: RunResult) -> bool:
    """Whether the labels are classes: only classes have a prior.

    A federation's server may not know what data its sites have; then it is assumed.
    """
    return result.input is None or result.input.kind != "regression"


def network_of(result: RunResult) -> str:
    """Returns the kind of the clients' networks.

    It is read from their architectures or, in a federation, whose sites do not report them, from
    the options.
    """
    option = str(result.options.get("network", "network"))
    if option.startswith(SPACE):
        return f"network drawn from {space_in_words(option.removeprefix(SPACE))}"
    if option.startswith(CELLS) or option.endswith(".json"):
        return f"network of {option.removeprefix(CELLS).rpartition('/')[2]}"
    for client in result.clients:
        name, _, _ = str(client.architecture).rpartition(":")
        if name:
            return NETWORKS.get(name, name)
    return NETWORKS.get(option, option)


def space_in_words(name: str) -> str:
    """Returns the name of a space. Where a whole definition is given, its title is the name."""
    if "{" not in name:
        return name.rpartition("/")[2]
    return open_space(name).title


def width_of(result: RunResult) -> float | None:
    """Returns the width of the clients' network if its name has one, as `cnn:0.5` has."""
    for client in result.clients:
        if client.is_searched:
            return float(result.options["sizes"][0])
        _, _, width = str(client.architecture).rpartition(":")
        try:
            return float(width)
        except ValueError:
            return None
    return None


def chosen_size(decisions: Sequence[Decision]) -> float | None:
    """Returns the width that the last decision on sizes chose.

    It is None if there was no such decision, or if it left several widths.
    """
    size = None
    for decision in decisions:
        if decision.decision.partition(",")[0] != "size":
            continue
        try:
            size = float(decision.chosen)
        except ValueError:  # several are left: a later decision chooses among them
            size = None
    return size
