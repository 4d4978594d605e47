"""FedorAS's stages, step by step."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from fedloom.config.models import TiersConfig
from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import ClientRun
from fedloom.methods.fedoras import TrainSupernet, tiered
from fedloom.methods.fedoras_choice import best_path
from fedloom.methods.fedoras_frame import Frame, as_sub_space
from fedloom.methods.fedoras_options import FedorASOptions
from fedloom.methods.fedoras_search import SearchPaths, smallest_part, summed
from fedloom.methods.fedoras_tiers import eligible, spaces_of
from fedloom.methods.fedoras_tune import TuneTiers
from fedloom.records.sections import Sections
from fedloom.runs.tiers import deal_of
from fedloom.searchers import path_scores
from fedloom.searchers.path_scores import score_paths
from fedloom.searchers.paths import PathSampler
from fedloom.types import Order, Reply, Round, Setup, Stamp, State, Task

SPACE = str(Path(__file__).parents[2] / "contract" / "short_chain.toml")
CLIENTS = 4


def options(**changes: object) -> FedorASOptions:
    return FedorASOptions.model_validate({"space": SPACE, "epochs": 2, "batch": 4, **changes})


def task(asked: FedorASOptions) -> Task:
    return Task(
        "fedoras", asked.model_dump(), "image", (1, 6, 6), ("a", "b", "c"), 3, (0.5,), (0.5,)
    )


def samples(count: int, seed: int = 0) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 1, 6, 6, generator=generator)
    return Samples(x, torch.randint(0, 3, (count,), generator=generator))


SERVER_DATA = samples(30, 9)


def begun(
    asked: FedorASOptions,
    tiers: TiersConfig | None = None,
    server_data: Samples | None = SERVER_DATA,
) -> tuple[State, Setup]:
    of_run = task(asked)
    deal = deal_of(tiers or TiersConfig(), tiered(of_run), CLIENTS, of_run.seed)
    setup = Setup(of_run, CLIENTS, tiers=deal, server_data=server_data)
    return TrainSupernet(asked).init(setup, None), setup


def a_round(number: int = 0, server_data: Samples | None = None) -> Round:
    return Round(number, 0.0, 4.0, range(CLIENTS), 1.0, 3, server_data)


def stamped(order: Order, asked: FedorASOptions, stage: str) -> Order:
    return replace(order, stamp=Stamp("test", task(asked), stage, 1, 0))


def client_run(asked: FedorASOptions, client: int = 0) -> ClientRun:
    return ClientRun(task(asked), "supernet", 1, 0, client, "cpu", lambda: b"")


def trained(asked: FedorASOptions, order: Order, count: int = 12) -> Reply:
    method = TrainSupernet(asked)
    return method.client(
        order, samples(count, order.client), None, client_run(asked, order.client)
    )[0]


class TestSubSpaces:
    def test_an_order_brings_its_part_within_the_budget(self) -> None:
        asked = options(comm="0.6")
        state, _ = begun(asked)
        frame = Frame.from_plain(state.meta["frame"])
        planned = TrainSupernet(asked).plan(state, a_round())
        assert planned is not None
        parameters = set(state.meta["parameters"])
        seen = set()
        for order in planned[1]:
            numbers_sent = sum(
                tensor.numel() for name, tensor in order.tensors.items() if name in parameters
            )
            part = tuple(tuple(ops) for ops in order.meta["ops"])
            seen.add(part)
            assert set(order.tensors) == set(frame.model(part).state_dict())
            assert numbers_sent <= 0.6 * frame.supernet_params
        assert len(seen) > 1  # every client has a part of its own

    def test_a_budget_in_parameters_and_one_as_a_share(self) -> None:
        assert options(comm="11.4M").comm_budget(20_802_298) == 11.4e6
        assert options(comm=".25").comm_budget(1000) == 250
        assert options(comm=1).comm_budget(1000) == 1000
        assert options().comm_budget(1000, least_for_all=500) == 500
        assert options().comm_budget(1000, least_for_all=501) == 1000

    def test_a_budget_below_the_fixed_part_is_refused_before_anything_is_trained(self) -> None:
        begun(options(comm="0.6"))
        with pytest.raises(FedloomError, match="--comm"):
            begun(options(comm="2"))

    def test_a_space_of_ones_own_whose_fixed_part_is_most_of_it_is_sent_whole(
        self, tmp_path: Path
    ) -> None:
        file = tmp_path / "small.toml"
        file.write_text(
            'name = "small"\nkind = "image"\nstem = {op = "conv3", channels = 8, stride = 1}\n'
            '[[stage]]\nlayers = 1\nops = ["ds3e1", "conv1"]\nreduce = "dw+proj"\nscale = 4\n'
        )
        state, _ = begun(options(space=str(file)))
        planned = TrainSupernet(options(space=str(file))).plan(state, a_round())
        assert planned is not None
        for order in planned[1]:
            assert set(order.tensors) == set(state.tensors)
        with pytest.raises(FedloomError, match=r"use --comm 0\.\d+ or more"):
            begun(options(space=str(file), comm="0.5"))


class TestTraining:
    def test_operations_off_every_path_do_not_come_back(self) -> None:
        asked = options(comm="1")
        state, _ = begun(asked)
        planned = TrainSupernet(asked).plan(state, a_round())
        assert planned is not None
        frame = Frame.from_plain(state.meta["frame"])
        for order in planned[1]:
            reply = trained(asked, order)
            for name in order.tensors:
                owner = frame.owners[name]
                through = reply.meta["samples"]
                if owner is not None:
                    through = reply.meta["ops"][owner.slot][owner.op]
                assert (name in reply.tensors) == (through > 0)
                if through:
                    assert isinstance(reply.weight, dict)
                    assert reply.weight[name] == through

    def test_counts_are_of_every_epoch_and_layer(self) -> None:
        asked = options(comm="1")
        state, _ = begun(asked)
        planned = TrainSupernet(asked).plan(state, a_round())
        assert planned is not None
        reply = trained(asked, planned[1][0], count=20)
        kept_for_training = 18  # the rest is kept back for scores
        assert reply.meta["samples"] == 2 * kept_for_training
        for counts in reply.meta["ops"]:
            assert sum(counts) == 2 * kept_for_training

    def test_every_path_is_within_the_tier(self) -> None:
        asked = options(comm="1")
        cheapest = 4000.0
        tiers = TiersConfig(limits=f"{cheapest},max", cost="macs")
        state, _ = begun(asked, tiers)
        planned = TrainSupernet(asked).plan(state, a_round())
        assert planned is not None
        frame = Frame.from_plain(state.meta["frame"])
        for order in planned[1]:
            limit = order.meta["limit"]["macs"]
            reply = trained(asked, order)
            for layer, counts in enumerate(reply.meta["ops"]):
                for op, count in enumerate(counts):
                    if count:
                        alone = frame.table.fixed.macs + frame.table.rows[layer][op].macs
                        assert alone <= limit

    def test_one_operation_a_layer_is_fedavg(self, tmp_path: Path) -> None:
        text = (
            Path(SPACE).read_text().replace('["conv1", "ds3e1", "mb3e1", "identity"]', '["ds3e1"]')
        )
        single = tmp_path / "single.toml"
        single.write_text(text)
        asked = options(space=str(single), comm="1", score="central")
        state, _ = begun(asked, TiersConfig(limits="1", cost="macs"))
        planned = TrainSupernet(asked).plan(state, a_round())
        assert planned is not None
        orders = planned[1]
        replies = [trained(asked, order, count=8 + 4 * order.client) for order in orders]
        merged = TrainSupernet(asked).merge(state, orders, replies, a_round())
        total = sum(8 + 4 * order.client for order in orders)
        for name, tensor in merged.tensors.items():
            if not tensor.is_floating_point():
                continue
            mean = torch.zeros_like(tensor)
            for reply in replies:
                mean += reply.tensors[name] * ((8 + 4 * reply.client) / total)
            assert torch.allclose(tensor, mean, atol=1e-6), name

    def test_fedavg_brings_back_everything(self) -> None:
        asked = options(comm="0.7", aggregate="fedavg")
        state, _ = begun(asked)
        planned = TrainSupernet(asked).plan(state, a_round())
        assert planned is not None
        reply = trained(asked, planned[1][0], count=20)
        assert set(reply.tensors) == set(planned[1][0].tensors)
        assert reply.weight == 18

    def test_what_one_client_touched_stays(self) -> None:
        asked = options(comm="1")
        state, _ = begun(asked)
        planned = TrainSupernet(asked).plan(state, a_round())
        assert planned is not None
        reply = trained(asked, planned[1][0])
        merged = TrainSupernet(asked).merge(state, planned[1], [reply], a_round())
        for name, tensor in state.tensors.items():
            assert torch.equal(merged.tensors[name], tensor), name

    def merged_by_hand(self, asked: FedorASOptions, of_clients: list[list[list[int]]]) -> State:
        """Replies that count so; their tensors are those that they were sent."""
        state, _ = begun(asked)
        planned = TrainSupernet(asked).plan(state, a_round())
        assert planned is not None
        frame = Frame.from_plain(state.meta["frame"])
        replies = []
        for order, counts in zip(planned[1], of_clients, strict=False):
            weights = {}
            for name in order.tensors:
                through = frame.samples_through(name, counts, sum(counts[0]))
                if through:
                    weights[name] = float(through)
            tensors = {name: order.tensors[name] for name in weights}
            weight: dict[str, float] | float = weights
            if asked.aggregate == "fedavg":
                tensors = dict(order.tensors)
                weight = 5.0
            replies.append(Reply(order.client, tensors, weight, {"ops": counts}))
        return TrainSupernet(asked).merge(state, planned[1], replies, a_round())

    def test_operations_of_a_round_are_counted_after_its_merge(self) -> None:
        """Of twelve, the three identities have no weights."""
        first = [[4, 0, 0, 0], [0, 4, 0, 0], [0, 0, 0, 4]]
        second = [[2, 6, 0, 0], [0, 8, 0, 0], [0, 0, 8, 0]]
        merged = self.merged_by_hand(options(comm="1"), [first, second])
        counted = {"touched": 4, "merged": 2, "kept": 2}
        assert TrainSupernet(options()).note_after(merged, a_round()) == {"ops": counted}
        assert merged.meta["ops"] == [[6, 6, 0, 0], [0, 12, 0, 0], [0, 0, 8, 4]]
        alone = self.merged_by_hand(options(comm="1"), [first])
        assert alone.meta["ops_of_round"] == {"touched": 2, "merged": 0, "kept": 2}

    def test_fedavg_merges_what_was_sent(self) -> None:
        asked = options(comm="1", aggregate="fedavg")
        merged = self.merged_by_hand(asked, [[[4, 0, 0, 0], [0, 4, 0, 0], [0, 0, 0, 4]]])
        assert merged.meta["ops_of_round"] == {"touched": 2, "merged": 9, "kept": 0}

    def test_a_dynamic_limit_never_leaves_a_client_without_a_path(self) -> None:
        asked = options(comm="1", dynamic=0.01)
        state, _ = begun(asked)
        planned = TrainSupernet(asked).plan(state, a_round())
        assert planned is not None
        reply = trained(asked, planned[1][0])
        assert reply.meta["samples"] > 0


class TestReplies:
    def wrong(self, change: dict[str, object]) -> str | None:
        asked = options(comm="1")
        state, _ = begun(asked)
        planned = TrainSupernet(asked).plan(state, a_round())
        assert planned is not None
        order = stamped(planned[1][0], asked, "supernet")
        reply = trained(asked, order, count=12)
        assert TrainSupernet(asked).check_reply(order, reply, 12) is None
        return TrainSupernet(asked).check_reply(order, replace(reply, **change), 12)  # type: ignore[arg-type]

    def test_counts_that_cannot_be(self) -> None:
        asked_samples = 22  # two epochs of the eleven that are not kept back
        fine = [[asked_samples, 0, 0, 0]] * 3
        assert "samples went through" in str(self.wrong({"meta": {"samples": 1000, "ops": fine}}))
        assert "of 2 layers" in str(self.wrong({"meta": {"samples": 22, "ops": fine[:2]}}))
        too_many = [[22, 1, 0, 0], *fine[:2]]
        assert "layer 1 counts 23 samples" in str(
            self.wrong({"meta": {"samples": 22, "ops": too_many}})
        )
        negative = [[23, -1, 0, 0], *fine[:2]]
        assert "-1 samples" in str(self.wrong({"meta": {"samples": 22, "ops": negative}}))

    def test_a_weight_that_is_not_the_count(self) -> None:
        reason = self.wrong({"weight": {"net.classifier.bias": 5.0}})
        assert reason is not None and "net.classifier.bias" in reason


def scored_state(asked: FedorASOptions, server_data: Samples | None) -> tuple[State, SearchPaths]:
    state, setup = begun(asked)
    method = SearchPaths(asked)
    return method.init(replace(setup, server_data=server_data), state), method


class TestScores:
    def paths(self, state: State) -> list[tuple[int, ...]]:
        rng = np.random.default_rng(0)
        space = spaces_of(state)[-1]
        return sorted({PathSampler(space.costs).draw(space.limits, rng) for _ in range(30)})

    def test_shared_prefixes_give_the_bits_of_each_path_alone(self) -> None:
        state, _ = begun(options())
        frame = Frame.from_plain(state.meta["frame"])
        data = samples(40)
        paths = self.paths(state)
        together = score_paths(frame.model(None, state.tensors), paths, data)
        for path, score in zip(paths, together, strict=True):
            part = as_sub_space(path)
            alone = frame.model(part, frame.part(state.tensors, part))
            assert score_paths(alone, [path], data) == [score]

    @pytest.mark.parametrize("statistics", ["running", "batch", "recalibrated"])
    def test_the_supernet_itself_is_left_alone(self, statistics: str) -> None:
        state, _ = begun(options())
        frame = Frame.from_plain(state.meta["frame"])
        before = {name: tensor.clone() for name, tensor in state.tensors.items()}
        model = frame.model(None, state.tensors)
        scores = score_paths(model, self.paths(state), samples(40), statistics)  # type: ignore[arg-type]
        assert all(score.samples == 40 for score in scores)
        for name, tensor in state.tensors.items():
            assert torch.equal(tensor, before[name])

    @pytest.mark.parametrize(
        ("statistics", "scored"),
        [("running", 9), ("recalibrated", 9), ("batch", 8)],  # one alone has no statistics
    )
    def test_a_last_sample_by_itself(
        self,
        statistics: str,
        scored: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(path_scores, "BATCH", 4)
        state, _ = begun(options())
        frame = Frame.from_plain(state.meta["frame"])
        model = frame.model(None, state.tensors)
        scores = score_paths(model, self.paths(state), samples(9), statistics)  # type: ignore[arg-type]
        assert {score.samples for score in scores} == {scored}

    def test_nothing_to_score_on(self) -> None:
        state, _ = begun(options())
        frame = Frame.from_plain(state.meta["frame"])
        model = frame.model(None, state.tensors)
        assert {score.samples for score in score_paths(model, self.paths(state), samples(0))} == {0}

    def test_federated_scores_are_central_ones_on_the_union(self) -> None:
        asked = options(models=6, pool=6)
        state, method = scored_state(asked, None)
        planned = method.plan(state, a_round())
        assert planned is not None
        replies = []
        kept_back = []
        for order in planned[1]:
            data = samples(20, order.client)
            kept_back.append(data.split(asked.train_share)[1])
            replies.append(method.client(order, data, None, client_run(asked, order.client))[0])
            assert method.check_reply(order, replies[-1], 20) is None
        paths = [tuple(path) for path in planned[1][0].meta["paths"]]
        union = Samples(
            torch.cat([part.x for part in kept_back]),
            torch.cat([part.y for part in kept_back]),
        )
        frame = Frame.from_plain(state.meta["frame"])
        central = score_paths(frame.model(None, state.tensors), paths, union)
        for mine, theirs in zip(summed(len(paths), replies), central, strict=True):
            assert mine.samples == theirs.samples == 8
            assert mine.correct == theirs.correct
            assert mine.mean_loss == pytest.approx(theirs.mean_loss, abs=1e-6)

    @pytest.mark.parametrize(
        ("meta", "words"),
        [
            ({"loss": [1.0], "correct": [1], "samples": 2}, "paths of"),
            ({"loss": [float("nan")] * 4, "correct": [1] * 4, "samples": 2}, "sum of losses"),
            ({"loss": [1.0] * 4, "correct": [3] * 4, "samples": 2}, "3 of 2 answers"),
            ({"loss": [1.0] * 4, "correct": [1] * 4, "samples": 200}, "200 samples of 20"),
        ],
    )
    def test_a_wrong_list_of_scores_is_refused(self, meta: dict[str, object], words: str) -> None:
        asked = options(models=2, pool=2)
        _, method = scored_state(asked, None)
        order = Order(0, "score", meta={"paths": [[0, 0, 0]] * 4})
        assert words in str(method.check_reply(order, Reply(0, meta=meta), 20))

    def test_the_minimal_supernet_has_the_paths_and_nothing_else(self) -> None:
        assert smallest_part([(0, 1, 2), (0, 2, 2)]) == ((0,), (1, 2), (2,))


class TestSearch:
    def run(self, asked: FedorASOptions, rounds: int = 50) -> State:
        data = samples(30, 9)
        state, method = scored_state(asked, data)
        for number in range(rounds):
            planned = method.plan(state, a_round(number, data))
            if planned is None:
                return state
            assert planned[1] == []
            state = method.merge(planned[0], [], [], a_round(number, data))
        raise AssertionError("the search does not end")

    def test_a_central_search_asks_nobody_and_ends_at_its_number_of_models(self) -> None:
        state = self.run(options(score="central", models=10, pool=4, sample=3))
        for paths in state.meta["search"]["tried"].values():
            assert len(paths) == 10
            assert len({tuple(path) for path in paths}) == 10  # never the same path twice
        scores = state.meta["search"]["scores"]
        assert len(scores) == len({tuple(path) for path, *_ in scores})

    def test_the_chosen_path_has_the_lowest_loss_that_fits(self) -> None:
        state = self.run(options(score="central", models=10, pool=4, sample=3))
        for space in spaces_of(state):
            fitting = [row for row in state.meta["search"]["scores"] if space.fits(tuple(row[0]))]
            assert best_path(state, space.tier) == tuple(min(fitting, key=lambda row: row[1])[0])

    def test_the_whole_memory_is_json_and_the_search_repeats(self) -> None:
        first = self.run(options(score="central", models=8, pool=4, sample=3))
        again = self.run(options(score="central", models=8, pool=4, sample=3))
        assert first.meta["search"] == again.meta["search"]

    def test_a_search_in_a_space_smaller_than_its_number_of_models_ends(self) -> None:
        state = self.run(options(score="central", models=1000, pool=8, sample=8), rounds=200)
        assert len(state.meta["search"]["scores"]) <= 64

    def test_central_without_samples_says_what_to_do(self) -> None:
        asked = options(score="central")
        with pytest.raises(FedloomError, match=r"data\.server_share"):
            begun(asked, server_data=None)

    def test_a_space_of_cells_is_no_chain(self) -> None:
        with pytest.raises(ValidationError, match="a chain of layers"):
            FedorASOptions(space="darts")


class TestTuning:
    def tuned(self, rounds: int, **changes: object) -> tuple[State, list[Sequence[Order]]]:
        asked = options(**{"score": "central", "models": 4, "pool": 4, **changes})
        state = TestSearch().run(asked)
        _, setup = begun(asked)
        method = TuneTiers(asked)
        state = method.init(setup, state)
        asked_clients = []
        for number in range(rounds):
            planned = method.plan(state, a_round(number))
            assert planned is not None
            asked_clients.append(planned[1])
            replies = []
            for order in planned[1]:
                data = samples(12, order.client)
                replies.append(method.client(order, data, None, client_run(asked, order.client))[0])
            state = method.merge(planned[0], planned[1], replies, a_round(number))
        return state, asked_clients

    def test_tiers_take_turns_with_clients_of_theirs_and_above(self) -> None:
        state, rounds = self.tuned(4)
        assert state.meta["tuned"] == [2, 2]
        assert [order.client for order in rounds[0]] == eligible(state, 1) == list(range(CLIENTS))
        assert [order.client for order in rounds[1]] == eligible(state, 2)
        assert len(eligible(state, 2)) < CLIENTS

    def test_a_tier_begins_with_the_supernets_weights_or_with_fresh_ones(self) -> None:
        from_supernet, _ = self.tuned(0)
        fresh, _ = self.tuned(0, start="random")
        supernet, _ = begun(options(score="central", models=4, pool=4))
        name = "net.classifier.weight"
        assert torch.equal(from_supernet.tensors[f"tier-1/{name}"], supernet.tensors[name])
        assert from_supernet.meta["paths"] == fresh.meta["paths"]
        assert set(from_supernet.tensors) == set(fresh.tensors)

    def test_a_round_moves_one_tier_alone(self) -> None:
        before, _ = self.tuned(0)
        after, _ = self.tuned(1)
        for name, tensor in before.tensors.items():
            if name.startswith("tier-2/"):
                assert torch.equal(after.tensors[name], tensor)
        moved = "tier-1/net.classifier.weight"
        assert not torch.equal(after.tensors[moved], before.tensors[moved])


class TestResult:
    def found(self, rounds: int = 3, **changes: object) -> tuple[State, Sections]:
        asked = {"score": "central", "models": 10, "pool": 6, "sample": 4, **changes}
        state, _ = TestTuning().tuned(rounds, **asked)
        return state, TuneTiers(options(**asked)).sections(state)

    def test_every_tier_is_told_with_its_path_and_costs(self) -> None:
        state, sections = self.found()
        frame = Frame.from_plain(state.meta["frame"])
        assert sections.tier_of == tuple(state.meta["tier_of"])
        assert [tier.tier for tier in sections.tiers] == [1, 2]
        assert [tier.tuned_rounds for tier in sections.tiers] == [2, 1]
        assert [tier.clients for tier in sections.tiers] == [2, 2]
        assert [tier.eligible for tier in sections.tiers] == [4, 2]
        for number, tier in enumerate(sections.tiers):
            path = state.meta["paths"][number]
            assert tier.limit == state.meta["tiers"][number]["limit"]
            assert tier.path == [frame.space.slots[0].options[op] for op in path]
            assert tier.architecture["choice"] == [[op] for op in path]
            model = frame.model(as_sub_space(tuple(path)))
            assert tier.head == model.head == "grid"  # what the usual choice comes to
            assert tier.params == sum(parameter.numel() for parameter in model.parameters())
            costs = [frame.table.rows[layer][op] for layer, op in enumerate(path)]
            assert tier.macs == frame.table.fixed.macs + sum(cost.macs for cost in costs)
            paper = sum(cost.macs_paper for cost in costs)
            assert tier.macs_paper == frame.table.fixed.macs_paper + paper

    def test_the_chosen_path_ends_the_front_and_has_its_score(self) -> None:
        state, sections = self.found()
        scores = {tuple(row[0]): row[1:] for row in state.meta["search"]["scores"]}
        assert sections.search is not None
        assert sections.search.to_json() == {
            "score": "central",
            "models": len(scores),
            "generations": state.meta["search"]["generation"],
            "tau": None,
            "tau_clients": None,
            "supernet_bytes": state.meta["supernet_bytes"],
        }
        for number, tier in enumerate(sections.tiers):
            loss, accuracy, _, balanced = scores[tuple(state.meta["paths"][number])]
            assert tier.validation is not None
            figures = {"loss": loss, "accuracy": accuracy, "balanced_accuracy": balanced}
            assert tier.validation.to_json() == figures
            last = tier.front[-1]
            assert last.to_json() == {"path": tier.path, "macs": tier.macs, **figures}
            costs = [point.macs for point in tier.front]
            losses = [point.loss for point in tier.front]
            assert costs == sorted(costs)
            assert losses == sorted(losses, reverse=True)

    def test_samples_through_operations_by_name(self) -> None:
        state, _ = self.found(0)
        counts = [[5, 0, 1, 2], [0, 8, 0, 0], [3, 3, 1, 1]]
        counted = State(state.tensors, {**state.meta, "ops": counts})
        ops = TuneTiers(options()).sections(counted).ops
        names = ["conv1", "ds3e1", "mb3e1", "identity"]
        assert ops == tuple(dict(zip(names, layer, strict=True)) for layer in counts)

    def test_a_control_is_scored_with_the_supernets_weights(self) -> None:
        """At (0, 0, 2), the path of both tiers, it is the same operations in another order."""
        state, sections = self.found(0, models=4, pool=4)
        frame = Frame.from_plain(state.meta["frame"])
        supernet, _ = begun(options())
        part = as_sub_space((2, 0, 0))
        alone = frame.model(part, frame.part(supernet.tensors, part))
        score = score_paths(alone, [(2, 0, 0)], samples(30, 9), classes=3)[0]
        figures = {
            "loss": score.mean_loss,
            "accuracy": score.accuracy,
            "balanced_accuracy": score.balanced_accuracy,
        }
        for tier in sections.tiers:
            assert tier.path == ["conv1", "conv1", "mb3e1"]
            assert tier.control.to_json() == {
                "path": ["mb3e1", "conv1", "conv1"],
                "macs": tier.macs,
                "validation": figures,
            }

    def test_a_control_is_never_chosen(self) -> None:
        searched = TestSearch().run(options(score="central", models=4, pool=4))
        assert [row[0] for row in searched.meta["control_scores"]] == [[2, 0, 0]]
        better = [[[2, 0, 0], 0.0, 1.0, 30]]
        tempted = State(searched.tensors, {**searched.meta, "control_scores": better})
        assert best_path(tempted, 1) == best_path(searched, 1) == (0, 0, 2)

    def test_the_round_of_controls_is_noted_apart(self) -> None:
        data = samples(30, 9)
        state, method = scored_state(options(score="central", models=4, pool=4), data)
        notes = []
        while (planned := method.plan(state, a_round(0, data))) is not None:
            notes.append(method.note(planned[0], a_round(0, data)))
            state = method.merge(planned[0], [], [], a_round(0, data))
        assert notes == [
            {"generation": 1, "scored": 7},
            {"generation": 1, "scored": 0, "controls": 1},
        ]

    def test_clients_score_controls_too(self) -> None:
        asked = options(models=4, pool=4)
        state, method = scored_state(asked, None)
        asked_for = []
        while (planned := method.plan(state, a_round())) is not None:
            asked_for.append(planned[1][0].meta["paths"])
            replies = []
            for order in planned[1]:
                run = client_run(asked, order.client)
                replies.append(method.client(order, samples(20, order.client), None, run)[0])
            state = method.merge(planned[0], planned[1], replies, a_round())
        assert len(asked_for) == 2
        assert asked_for[1] == sorted(row[0] for row in state.meta["control_scores"])

    def test_a_search_that_ends_early_takes_a_control_from_its_first_pool(self) -> None:
        """Tier 1 has (0, 0, 2) and (0, 2, 0) in its pool; the control that it drew has no score."""
        asked = options(score="central", models=8, pool=8)
        state, _ = scored_state(asked, samples(30, 9))
        scores = [[[0, 0, 2], 0.5, 0.5, 9], [[1, 1, 1], 0.6, 0.5, 9], [[0, 2, 0], 0.7, 0.25, 9]]
        tried = [row[0] for row in scores]
        memory = {"generation": 1, "pools": {"1": tried}, "tried": {"1": tried}, "scores": scores}
        ended = State(state.tensors, {**state.meta, "search": memory})
        assert ended.meta.get("controls") is None
        _, setup = begun(asked)
        sections = TuneTiers(asked).sections(TuneTiers(asked).init(setup, ended))
        first, second = (tier.control for tier in sections.tiers)
        assert first.path == ["conv1", "mb3e1", "conv1"]
        assert first.validation is not None and first.validation.loss == 0.7
        assert second.reason == "the search ended before a path of its cost was scored"

    def test_a_random_search_says_that_nothing_was_scored(self) -> None:
        _, sections = self.found(1, search="random")
        for tier in sections.tiers:
            assert tier.validation is None
            assert tier.front == []
            assert tier.control.reason is not None and "random" in tier.control.reason

    def test_every_tiers_network_is_served_tuned_and_as_the_supernet_has_it(self) -> None:
        state, _ = self.found(3, models=4, pool=4)
        supernet, _ = begun(options())
        method = TuneTiers(options())
        assert method.models(state) == ("tier-1", "supernet-1", "tier-2", "supernet-2")
        for number in (1, 2):
            tuned = method.serve_model(state, f"tier-{number}", 0)
            before = method.serve_model(state, f"supernet-{number}", 0)
            assert tuned.meta["ops"] == before.meta["ops"]
            assert tuned.meta["ops"] == [[op] for op in state.meta["paths"][number - 1]]
            assert set(tuned.tensors) == set(before.tensors)
            name = "net.classifier.weight"
            assert not torch.equal(tuned.tensors[name], before.tensors[name])
            for key, tensor in before.tensors.items():
                assert torch.equal(tensor, supernet.tensors[key])

    def test_a_client_uses_the_network_of_its_own_tier(self) -> None:
        state, _ = self.found(3)
        method = TuneTiers(options())
        for client, tier in enumerate(state.meta["tier_of"]):
            own = method.serve(state, client)
            of_tier = method.serve_model(state, f"tier-{tier}", client)
            assert own.meta == of_tier.meta
            assert own.tensors.keys() == of_tier.tensors.keys()
            for name, tensor in own.tensors.items():
                assert torch.equal(tensor, of_tier.tensors[name])


def test_one_client_a_round_is_refused() -> None:
    """Nothing that it alone trained would be merged."""
    asked = options()
    state, _ = begun(asked)
    alone = replace(a_round(), clients=range(1))
    with pytest.raises(FedloomError, match="at least 2 clients"):
        TrainSupernet(asked).plan(state, alone)
    averaging = TrainSupernet(options(aggregate="fedavg"))
    assert averaging.plan(state, alone) is not None


def test_one_client_that_is_there_is_asked() -> None:
    """The others are away by the simulated clock: that is no mistake of whoever began the run."""
    asked = options()
    state, _ = begun(asked)
    planned = TrainSupernet(asked).plan(state, replace(a_round(), present=frozenset({1})))
    assert planned is not None
    assert [order.client for order in planned[1]] == [1]
