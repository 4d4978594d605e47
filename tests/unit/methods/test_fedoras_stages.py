"""FedorAS's options of stages 2 and 3: given paths, starts, cached operations, agreement, costs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedloom.commands.run import is_switch, values_of_flags
from fedloom.config.models import BudgetConfig, TiersConfig
from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.federation.protocol.evaluation import ClientEvaluation, ModelEvaluation
from fedloom.federation.protocol.method import ClientRun
from fedloom.federation.protocol.wire import Body
from fedloom.methods.fedoras import TrainSupernet, stages, tiered
from fedloom.methods.fedoras_cache import SearchWithCache
from fedloom.methods.fedoras_choice import best_path
from fedloom.methods.fedoras_frame import Frame, as_sub_space
from fedloom.methods.fedoras_networks import networks_in
from fedloom.methods.fedoras_options import FedorASOptions
from fedloom.methods.fedoras_outlook import foreseen_rounds, paths_by_generation
from fedloom.methods.fedoras_search import SearchPaths, central_scores, part_to_score_on
from fedloom.methods.fedoras_tiers import eligible, spaces_of
from fedloom.methods.fedoras_tune import TuneTiers
from fedloom.metrics.figures import Figures
from fedloom.metrics.metric import METRICS
from fedloom.metrics.ranks import kendall_tau
from fedloom.records.result import TierResult
from fedloom.records.rows import MetricsRow
from fedloom.records.totals import Totals
from fedloom.rng import rng
from fedloom.runs.given_paths import read_paths
from fedloom.runs.stage_accounts import stage_accounts
from fedloom.runs.tier_results import with_top
from fedloom.runs.tiers import deal_of
from fedloom.searchers.paths import PathSampler
from fedloom.searchers.tier_search import (
    Memory,
    Score,
    SearchSettings,
    best_paths,
    next_paths,
)
from fedloom.spaces import open_space
from fedloom.types import Order, Reply, Round, Setup, State, Task

SPACE = str(Path(__file__).parents[2] / "contract" / "short_chain.toml")
CLIENTS = 4


def options(**changes: object) -> FedorASOptions:
    usual = {"space": SPACE, "epochs": 1, "batch": 8, "models": 6, "pool": 4, "sample": 2}
    return FedorASOptions.model_validate({**usual, **changes})


def task(asked: FedorASOptions) -> Task:
    return Task(
        "fedoras", asked.model_dump(), "image", (1, 6, 6), ("a", "b", "c"), 3, (0.5,), (0.5,)
    )


def samples(count: int, seed: int = 0) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 1, 6, 6, generator=generator)
    return Samples(x, torch.randint(0, 3, (count,), generator=generator))


def setup_of(asked: FedorASOptions, server_data: Samples | None = None, **tiers: object) -> Setup:
    of_run = task(asked)
    deal = deal_of(TiersConfig.model_validate(tiers), tiered(of_run), CLIENTS, of_run.seed)
    return Setup(of_run, CLIENTS, tiers=deal, server_data=server_data)


def a_round(number: int = 0, server_data: Samples | None = None) -> Round:
    return Round(number, 0.0, 4.0, range(CLIENTS), 1.0, 3, server_data)


def client_run(asked: FedorASOptions, client: int) -> ClientRun:
    return ClientRun(task(asked), "search", 1, 0, client, "cpu", lambda: b"")


def searched(
    asked: FedorASOptions,
    setup: Setup,
    refused: Mapping[int, int] | None = None,
) -> tuple[State, list[Sequence[Order]]]:
    """The whole search by clients that keep what they are to keep, and what they were sent.

    `refused`: by round, a client whose reply does not arrive.
    """
    method = SearchPaths(asked)
    if asked.cache:
        method = SearchWithCache(asked)
    state = method.init(setup, TrainSupernet(asked).init(setup, None))
    own: dict[int, State] = {}
    orders_by_round = []
    for number in range(30):
        planned = method.plan(state, a_round(number, setup.server_data))
        if planned is None:
            return state, orders_by_round
        state, orders = planned
        orders_by_round.append(orders)
        replies = []
        for order in orders:
            data = samples(30, order.client)
            run = client_run(asked, order.client)
            reply, own_state = method.client(order, data, own.get(order.client), run)
            if (refused or {}).get(number) == order.client:
                continue
            replies.append(reply)
            if own_state is not None:
                own[order.client] = own_state
        state = method.merge(state, orders, replies, a_round(number, setup.server_data))
    raise AssertionError("the search does not end")


def bytes_of(order: Order) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in order.tensors.values())


def supernet_bytes(frame: Frame) -> int:
    return frame.bytes_of(tuple(tuple(range(len(slot.options))) for slot in frame.space.slots))


class TestCache:
    def test_scores_are_the_same_and_no_client_is_sent_more_than_one_supernet(self) -> None:
        plain, every_time = searched(options(models=8), setup_of(options()))
        asked = options(models=8, cache=True)
        state, sent = searched(asked, setup_of(asked))
        assert state.meta["search"] == plain.meta["search"]
        assert state.meta["supernet_bytes"] == plain.meta["supernet_bytes"]
        frame = Frame.from_plain(state.meta["frame"])
        assert len(sent) == len(every_time) > 2
        for client in range(CLIENTS):
            in_all = sum(bytes_of(orders[client]) for orders in sent)
            assert in_all <= supernet_bytes(frame)
            assert in_all < sum(bytes_of(orders[client]) for orders in every_time)

    def test_who_did_not_answer_is_sent_everything_again(self) -> None:
        asked = options(cache=True)
        state, sent = searched(asked, setup_of(asked), refused={0: 1})
        frame = Frame.from_plain(state.meta["frame"])
        second = {order.client: order for order in sent[1]}
        assert "net.classifier.weight" in second[1].tensors
        assert "net.classifier.weight" not in second[0].tensors
        part = tuple(tuple(ops) for ops in second[1].meta["ops"])
        assert set(second[1].tensors) == set(frame.names_in(part))

    def test_a_client_that_lost_what_it_kept_says_so(self) -> None:
        asked = options(cache=True)
        _, sent = searched(asked, setup_of(asked))
        with pytest.raises(FedloomError, match="some are gone"):
            SearchWithCache(asked).client(sent[1][0], samples(30), None, client_run(asked, 0))

    def test_only_where_clients_score(self) -> None:
        with pytest.raises(FedloomError, match="--score federated"):
            options(cache=True, score="central")


class TestScores:
    def test_a_part_of_the_servers_set_stays_the_same(self) -> None:
        data = samples(40)
        assert part_to_score_on(data, None, 1) is data
        some = part_to_score_on(data, 0.25, 1)
        assert len(some) == 10
        assert torch.equal(some.x, part_to_score_on(data, 0.25, 1).x)
        assert not torch.equal(some.x, part_to_score_on(data, 0.25, 2).x)
        assert len(part_to_score_on(data, 7, 1)) == 7
        assert part_to_score_on(data, 400, 1) is data

    def test_a_share_of_samples_changes_what_is_scored(self) -> None:
        data = samples(40)
        asked = options(score="central", score_samples=0.5)
        state = TrainSupernet(asked).init(setup_of(asked, data), None)
        score = central_scores(state, [(0, 1, 2)], data, asked)[0]
        assert score.samples == 20
        with pytest.raises(FedloomError, match="here clients score"):
            options(score_samples=0.5)

    def test_pooled_scores_need_a_simulation(self) -> None:
        asked = options(score="pooled")
        assert asked.pooled_share == pytest.approx(1 - asked.train_share)
        assert asked.search_part is None
        with pytest.raises(FedloomError, match="simulation"):
            TrainSupernet(asked).init(setup_of(asked), None)
        TrainSupernet(asked).init(setup_of(asked, samples(30)), None)

    def test_agreement_of_clients_and_server(self) -> None:
        asked = options(models=12, pool=6)
        setup = setup_of(asked, samples(60, 9))
        state, _ = searched(asked, setup)
        tuned = TuneTiers(asked).init(setup, state)
        memory = Memory.from_plain(state.meta["search"])
        unique_paths: set[Path] = set()
        for pool in memory.pools.values():
            unique_paths.update(pool)
        paths = sorted(unique_paths)
        assert setup.server_data is not None
        scores = central_scores(state, paths, setup.server_data, asked)
        central = [score.mean_loss for score in scores]
        by_clients = [memory.scores[path].loss for path in paths]
        expected = kendall_tau(by_clients, central)
        search = TuneTiers(asked).sections(tuned).search
        assert search is not None
        assert expected is not None and (search.tau, search.tau_clients) == (expected, CLIENTS)
        without = TuneTiers(asked).init(replace(setup, server_data=None), state)
        assert without.meta["agreement"] is None

    def test_kendalls_tau_by_hand(self) -> None:
        assert kendall_tau([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(2 / 3)  # 5 of 6 pairs agree
        assert kendall_tau([1, 2, 3], [3, 2, 1]) == -1
        assert kendall_tau([1], [1]) is None
        assert kendall_tau([1, 1, 1], [1, 2, 3]) is None


class TestModels:
    def test_a_number_or_one_a_tier(self) -> None:
        short = open_space(options().space)
        assert options(models="7").models_of(short, 2) == (7, 7)
        assert options(models="7/9").models_of(short, 2) == (7, 9)
        with pytest.raises(FedloomError, match="one for each of the 3 tiers, but it has 2"):
            options(models="7,9").models_of(short, 3)

    def test_tiers_end_at_their_own_number_and_at_a_threshold(self) -> None:
        asked = options(score="central")
        setup = setup_of(asked, samples(30))
        spaces = spaces_of(TrainSupernet(asked).init(setup, None))
        settings = SearchSettings((4, 2), pool=4, sample=2)
        first = next_paths(Memory(), spaces, settings, seed=0)
        assert [len(first[tier]) for tier in (1, 2)] == [4, 2]
        scores = {}
        for path in {*first[1], *first[2]}:
            scores[path] = Score(1.0, 0.5, 10)
        scores[first[1][0]] = Score(1.0, 0.75, 10)
        tried = {tier: tuple(paths) for tier, paths in first.items()}
        memory = Memory(1, tried, tried, scores)
        more = SearchSettings((8, 8), pool=4, sample=2)
        assert set(next_paths(memory, spaces, more, seed=0)) == {1, 2}
        enough = SearchSettings((8, 8), pool=4, sample=2, threshold=0.75)
        assert 1 not in next_paths(memory, spaces, enough, seed=0)

    def test_the_papers_settings_by_space(self) -> None:
        """Tables of the paper: rounds' epochs and batch, rates, budgets, models, pools."""
        expected = {
            "cnn-l": (50, 128, 0.1, 0.9, "11.4M", (1000,) * 4, 128, 64),
            "cnn-s": (25, 64, 0.1, 0.9, "1.5M", (2000, 500, 500, 2000), 96, 48),
            "rnn": (5, 4, 1.0, 0.0, "0.83M", (100, 150, 150, 150, 100), 32, 16),
            "cnn-tiny": (5, 32, 0.1, 0.9, "auto", (100, 100), 32, 16),
        }
        for name, row in expected.items():
            implied = FedorASOptions.for_data({"space": name}, None, ())
            asked = FedorASOptions.model_validate({"space": name, **implied})
            space = open_space(name)
            models = asked.models_of(space, space.tier_rule.tiers)
            settings = (asked.epochs, asked.batch, asked.lr, asked.momentum, asked.comm)
            assert (*settings, models, asked.pool, asked.sample) == row
        assert FedorASOptions.for_data({}, "text", (80,))["clip"] == 5
        assert FedorASOptions.for_data({}, None, ()) == {}
        assert options().models_of(open_space("rnn"), 2) == (6, 6)
        assert FedorASOptions(space="rnn").models_of(open_space("rnn"), 2) == (150, 150)

    def test_shares_of_the_speech_paper(self) -> None:
        rule = open_space("cnn-s").tier_rule
        assert rule.shares == (0.8, 0.0125, 0.0125, 0.175)
        assert sum(rule.shares) == pytest.approx(1)


class TestGivenPaths:
    GIVEN = [["conv1", "identity", "identity"], ["ds3e1", "conv1", "identity"]]

    def test_which_stages_there_are(self) -> None:
        names = {}
        for paths in ("search", "random", self.GIVEN):
            for start in ("supernet", "random"):
                asked = options(paths=paths, start=start)
                names[(str(paths), start)] = [stage.name for stage in stages(task(asked))]
        whole = ["supernet", "search", "tune"]
        assert names[("search", "supernet")] == names[("search", "random")] == whole
        assert names[("random", "supernet")] == ["supernet", "tune"]
        assert names[("random", "random")] == names[(str(self.GIVEN), "random")] == ["tune"]
        assert options(paths="random").supernet_part == pytest.approx(5 / 6)

    def test_from_scratch_nothing_else_is_needed(self) -> None:
        asked = options(paths=self.GIVEN, start="random")
        state = TuneTiers(asked).init(setup_of(asked), None)
        frame = Frame.from_plain(state.meta["frame"])
        assert [frame.names_of(tuple(path)) for path in state.meta["paths"]] == self.GIVEN
        assert TuneTiers(asked).models(state) == ("tier-1", "tier-2")
        sections = TuneTiers(asked).sections(state)
        assert sections.search is None and sections.ops == ()
        assert [tier.path for tier in sections.tiers] == self.GIVEN
        assert "was given" in str(sections.tiers[0].control.reason)
        assert asked.tuning.lr == asked.lr
        assert options(start="random", tune_lr=0.5).tuning.lr == 0.5
        assert options().tuning.lr == 0.01

    @pytest.mark.parametrize(
        ("paths", "words"),
        [
            (GIVEN[:1], "a path for each of the 2 tiers, but it has 1"),
            ([["conv1"], ["conv1"]], "each of its 3 layers"),
            ([["conv1", "conv1", "conv9"], GIVEN[1]], "conv9"),
            ([["mb3e1", "mb3e1", "mb3e1"], GIVEN[1]], "path of tier 1 in --paths must be within"),
            ("somewhere", "a finished run or FILE.json"),
        ],
    )
    def test_paths_that_cannot_be(self, paths: object, words: str) -> None:
        asked = options(paths=paths, start="random")
        with pytest.raises(FedloomError, match=words):
            TuneTiers(asked).init(setup_of(asked), None)
        asked = options(paths=paths)
        with pytest.raises(FedloomError, match=words):
            TrainSupernet(asked).init(setup_of(asked), None)

    def test_random_paths_are_greedy_and_the_seeds(self) -> None:
        asked = options(paths="random", start="random")
        state = TuneTiers(asked).init(setup_of(asked), None)
        for space, path in zip(spaces_of(state), state.meta["paths"], strict=True):
            draws = rng(3, "random path", space.tier)
            assert tuple(path) == PathSampler(space.costs).draw(space.limits, draws)

    def test_all_clients_train_a_network_that_few_could_run(self) -> None:
        asked = options(paths=self.GIVEN, start="random", eligible="all")
        state = TuneTiers(asked).init(setup_of(asked), None)
        state = State(state.tensors, {**state.meta, "tuned": [1, 0]})  # the second tier's turn
        planned = TuneTiers(asked).plan(state, a_round())
        assert planned is not None
        assert [order.client for order in planned[1]] == list(range(CLIENTS))
        by_tier = TuneTiers(options(paths=self.GIVEN, start="random")).plan(state, a_round())
        assert by_tier is not None
        assert [order.client for order in by_tier[1]] == eligible(state, 2)
        assert TuneTiers(asked).sections(state).tiers[1].eligible == CLIENTS

    def test_a_tier_that_nobody_can_train_has_no_turn(self) -> None:
        asked = options(paths=self.GIVEN, start="random")
        state = TuneTiers(asked).init(setup_of(asked), None)
        nobody_in_tier_2 = {**state.meta, "tier_of": [1] * CLIENTS, "tuned": [1, 0]}
        state = State(state.tensors, nobody_in_tier_2)
        assert TuneTiers(asked).note(state, a_round()) == {"tier": 1}
        for_all = options(paths=self.GIVEN, start="random", eligible="all")
        assert TuneTiers(for_all).note(state, a_round()) == {"tier": 2}

    def test_the_last_stage_begins_before_anything_was_scored(self) -> None:
        asked = options()
        setup = setup_of(asked)
        state = SearchPaths(asked).init(setup, TrainSupernet(asked).init(setup, None))
        tuned = TuneTiers(asked).init(setup, state)
        assert len(tuned.meta["paths"]) == 2
        assert TuneTiers(asked).sections(tuned).tiers[0].validation is None

    def test_a_file_of_paths(self, tmp_path: Path) -> None:
        file = tmp_path / "paths.json"
        file.write_text('[["conv1", "identity"], ["conv1", "conv1"]]')
        assert read_paths(file) == [["conv1", "identity"], ["conv1", "conv1"]]
        for text in ("{}", "[]", '["conv1"]', "[[1]]", "no"):
            file.write_text(text)
            with pytest.raises(FedloomError, match="operations of a path for each tier"):
                read_paths(file)
        with pytest.raises(FedloomError, match="check --paths"):
            read_paths(tmp_path / "none.json")


class TestTop:
    def tuned(self, rounds: int) -> tuple[State, FedorASOptions]:
        asked = options(score="central", tune_top=3)
        data = samples(30, 9)
        setup = setup_of(asked, data)
        state, _ = searched(asked, setup)
        method = TuneTiers(asked)
        state = method.init(setup, state)
        for number in range(rounds):
            planned = method.plan(state, a_round(number))
            assert planned is not None
            replies = []
            for order in planned[1]:
                reply = Reply(order.client, order.tensors, 1.0, {"loss": 1.0})
                replies.append(reply)
            state = method.merge(planned[0], planned[1], replies, a_round(number))
        return state, asked

    def test_the_best_by_score_take_turns(self) -> None:
        state, asked = self.tuned(8)
        memory = Memory.from_plain(state.meta["search"])
        space = spaces_of(state)[0]
        best = best_paths(memory, space, 3)
        networks = networks_in(state)
        assert [(network.tier, network.place) for network in networks] == [
            (1, 1), (2, 1), (1, 2), (2, 2), (1, 3), (2, 3),
        ]  # fmt: skip
        assert [network.rounds for network in networks] == [2, 2, 1, 1, 1, 1]
        assert networks[0].path == best_path(state, 1)
        others = [network.path for network in networks if network.tier == 1][1:]
        assert others == [path for path in best if path != networks[0].path][:2]
        names = TuneTiers(asked).models(state)
        assert names[:4] == ("tier-1", "supernet-1", "tier-2", "supernet-2")
        assert names[4:] == ("tier-1-place-2", "tier-2-place-2", "tier-1-place-3", "tier-2-place-3")
        for network in networks:
            order = TuneTiers(asked).serve_model(state, network.name, 0)
            assert order.meta["ops"] == [[op] for op in network.path]
            frame = Frame.from_plain(state.meta["frame"])
            assert set(order.tensors) == set(frame.names_in(as_sub_space(network.path)))

    def test_how_well_scores_foretell_figures(self) -> None:
        state, asked = self.tuned(0)
        tier = TuneTiers(asked).sections(state).tiers[0]
        tier = tier.replace(top=[path.replace(tuned_rounds=1) for path in tier.top])
        losses = [path.validation.loss for path in tier.top]
        assert len(losses) == 3 and losses == sorted(losses)
        assert top_tau(tier, [0.9, 0.8, 0.7]) == 1  # the lower the loss, the better
        assert top_tau(tier, [0.7, 0.8, 0.9]) == -1
        untrained = tier.replace(top=[*tier.top[:2], tier.top[2].replace(tuned_rounds=0)])
        assert top_tau(untrained, [0.9, 0.8, 0.7]) is None
        row = tier.replace(top=[tier.top[0].replace(pooled_over_all=0.5)]).to_json()
        assert row["top"][0]["global"] == 0.5
        again = TierResult.model_validate(TierResult.fields_in(row))
        assert again.top[0].pooled_over_all == 0.5


def top_tau(tier: TierResult, figures: Sequence[float]) -> float | None:
    """With these pooled accuracies of its networks."""
    named = {}
    for name, figure in zip(["tier-1", "tier-1-place-2", "tier-1-place-3"], figures, strict=True):
        correct = round(10 * figure)
        beside = {"balanced_accuracy": figure / 2}
        named[name] = ModelEvaluation(Figures("accuracy", 10, correct, figure, None, beside))
    evaluation = ClientEvaluation(0, ModelEvaluation(), None, named)
    tier_with_top = with_top(tier, [evaluation], METRICS["accuracy"], ["balanced_accuracy"])
    balanced = [path.global_balanced_accuracy for path in tier_with_top.top]
    assert balanced == pytest.approx([figure / 2 for figure in figures])
    assert [path.pooled_over_all for path in tier_with_top.top] == pytest.approx(figures)
    return tier_with_top.top_tau


class TestAccounts:
    def rows(self) -> list[MetricsRow]:
        totals = [
            ("supernet", Totals(rounds=1, down=100, up=10, macs=1000)),
            ("supernet", Totals(rounds=2, down=200, up=20, macs=2000)),
            ("search", Totals(rounds=2, down=200, up=20, macs=2000, server_macs=50)),
            ("tune", Totals(rounds=3, down=230, up=29, macs=2500, server_macs=50)),
        ]
        rows = []
        for number, (stage, spent) in enumerate(totals, start=1):
            rows.append(MetricsRow(stage, number, 0.0, totals=spent))
        return rows

    def test_a_line_a_stage(self) -> None:
        names = ["supernet", "search", "tune"]
        left_out = {"supernet": 300, "tune": 70}
        lines = stage_accounts(names, self.rows(), left_out, BudgetConfig(rounds=3))
        assert [line.rounds for line in lines] == [2, 0, 1]
        assert [line.down for line in lines] == [200, 0, 30]
        assert [line.up for line in lines] == [20, 0, 9]
        assert [line.full_down for line in lines] == [500, 0, 100]
        assert [line.macs for line in lines] == [2000, 0, 500]
        assert [line.server_macs for line in lines] == [0, 50, 0]
        assert [line.share for line in lines] == [2 / 3, 0, 1 / 3]

    def test_shares_of_a_budget_in_macs(self) -> None:
        budget = BudgetConfig(rounds=3, equal="macs", amount=5000.0)
        names = ["supernet", "search", "tune"]
        lines = stage_accounts(names, self.rows(), {}, budget, has_macs=False)
        assert [line.share for line in lines] == [0.4, 0.01, 0.1]
        assert [line.macs for line in lines] == [None, None, None]

    def test_what_orders_left_out(self) -> None:
        asked = options(comm="0.6")
        state = TrainSupernet(asked).init(setup_of(asked), None)
        frame = Frame.from_plain(state.meta["frame"])
        assert supernet_bytes(frame) == sum(tensor.nbytes for tensor in state.tensors.values())
        planned = TrainSupernet(asked).plan(state, a_round())
        assert planned is not None
        orders = planned[1]
        replies = []
        for order in orders:
            counts = [[0] * 4 for _ in range(3)]
            replies.append(Reply(order.client, {}, {}, {"ops": counts}))
        merged = TrainSupernet(asked).merge(state, orders, replies, a_round())
        whole = CLIENTS * unpadded_bytes(state.tensors)
        assert merged.meta["left_out"] == {
            "supernet": whole - sum(unpadded_bytes(order.tensors) for order in orders)
        }

    def test_what_would_have_been_sent_does_not_depend_on_what_clients_keep(self) -> None:
        """Down and left out together: every order with the whole supernet, whatever was sent."""
        setup = setup_of(options())
        wholes = []
        for asked in (options(models=8), options(models=8, cache=True)):
            state, orders_by_round = searched(asked, setup)
            bytes_sent = 0
            for orders in orders_by_round:
                bytes_sent += sum(unpadded_bytes(order.tensors) for order in orders)
            wholes.append(bytes_sent + state.meta["left_out"]["search"])
            assert wholes[-1] == len(orders_by_round) * CLIENTS * unpadded_bytes(
                setup_tensors(asked)
            )
        assert wholes[0] == wholes[1]


def unpadded_bytes(tensors: Mapping[str, torch.Tensor]) -> int:
    """What these tensors add to a message."""
    body = Body(tensors)
    return body.size + len(body.table) + (1 if tensors else 0)  # a comma before the table


def setup_tensors(asked: FedorASOptions) -> Mapping[str, torch.Tensor]:
    return TrainSupernet(asked).init(setup_of(asked), None).tensors


class TestDryRun:
    def test_generations_by_hand(self) -> None:
        settings = SearchSettings((10, 5), pool=4, sample=3)
        assert paths_by_generation(settings) == [(4, 4), (3, 1), (3, 0)]

    def test_a_search_is_foreseen_without_a_score(self) -> None:
        asked = options(models=10, pool=4, sample=3, score="central")
        setup = setup_of(asked, samples(30))
        state = SearchPaths(asked).init(setup, TrainSupernet(asked).init(setup, None))
        rounds = SearchPaths(asked).foresee(state, a_round(0, samples(30)), 100.0)
        assert rounds is not None
        assert [foreseen.is_generation for foreseen in rounds] == [True, True, True, False]
        assert all(foreseen.clients == 0 and foreseen.down == 0 for foreseen in rounds)
        assert rounds[0].macs / rounds[1].macs == pytest.approx(4 / 3)
        by_clients = options(models=10, pool=4, sample=3)
        asked_rounds = foreseen_rounds(state, by_clients, 4, 100.0)
        # Of 100 samples a client keeps back ten, so four clients score on 40, the server on 30.
        assert asked_rounds[0].macs == pytest.approx(rounds[0].macs * 40 / 30)
        with_cache = foreseen_rounds(
            state, options(models=10, pool=4, sample=3, cache=True), 1, 100.0
        )
        frame = Frame.from_plain(state.meta["frame"])
        assert sum(foreseen.down for foreseen in with_cache) <= supernet_bytes(frame)


def test_a_switch_may_stand_alone() -> None:
    words = ["--cache", "--models", "8", "--lr=0.1", "--cache-too", "x"]
    values = values_of_flags(words, {"--cache"})
    assert values == {"--cache": None, "--models": "8", "--lr": "0.1", "--cache-too": "x"}
    assert values_of_flags(["--cache", "true", "--models"], {"--cache"}) == {
        "--cache": "true",
        "--models": None,
    }
    assert is_switch(FedorASOptions.model_fields["cache"])
    assert not is_switch(FedorASOptions.model_fields["models"])
