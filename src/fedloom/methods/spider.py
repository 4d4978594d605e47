"""SPIDER: Mushtaq, He, Ding, Avestimehr, "Distributed Architecture Search Over Heterogeneous Distributions", TMLR 2023.

Every client has two models: the shared supernet w, trained by FedAvg, and its own (v_k, A_k), which begins as the same
supernet, is pulled towards the received w wherever its operations are alive (Algorithm 1), and is cut down edge by edge
by what the client's validation data say (Algorithm 2). Nothing of v_k and A_k leaves the client or shows in its reply.

Three phases follow the schedule, never A_k: warm-up, search, final training, when validation data join the rest.
`searcher = "milenas"` is appendix C. `search = "random"` is the control: the same, with decisions by chance.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf

import torch
from torch import nn

from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import ClientRun, Method, Recipe, Stage, shared
from fedloom.learning.averaging import server_step
from fedloom.learning.optimizers import Sgd, remembered
from fedloom.learning.private_state import momentum_in, weights_in
from fedloom.learning.proximal import pull_towards
from fedloom.learning.training import (
    MOMENTUM,
    AfterBackward,
    converging,
    least_samples,
    recalibrate,
    sgd,
    train,
    training_batches,
    training_mode,
    weights_of,
)
from fedloom.methods.spider_options import SpiderOptions
from fedloom.nets.model import Model, seeded
from fedloom.searchers import perturbation
from fedloom.searchers.milenas import MiLeNAS, endless
from fedloom.searchers.perturbation import Decision, Scorer
from fedloom.searchers.schedule import phase_of
from fedloom.spaces import space_for
from fedloom.spaces.mixed import Mixed, alpha_in, fresh_alpha, plain, supernet_model
from fedloom.types import ALPHA, Arch, Fields, Json, Meta, Order, Reply, Round, Setup, State, Task, Tensors


@dataclass(frozen=True)
class PrivateModel:
    """What a client keeps to itself: v_k, its optimiser, A_k and how it came about."""

    weights: Tensors
    momentum: Tensors
    arch: Arch
    open: tuple[int, ...]  # edges to be decided
    decisions: tuple[Json, ...] = ()
    pruned: bool = False
    diverged: int = 0  # rounds whose training of v was undone

    @classmethod
    def of(cls, own: State | None, options: SpiderOptions, task: Task) -> PrivateModel:
        """From a client's state; v starts from the seed, not from the received w."""
        if own is not None:
            return cls(
                weights=weights_in(own),
                momentum=momentum_in(own),
                arch=Arch.from_plain(own.meta["arch"]),
                open=tuple(own.meta["open"]),
                decisions=tuple(own.meta["decisions"]),
                pruned=own.meta["pruned"],
                diverged=own.meta["diverged"],
            )
        space = space_for(options)
        count = 0 if options.searcher == "milenas" else len(perturbation.edges(space, paired=options.edges == "paired"))
        alpha = fresh_alpha(options, task.seed) if options.searcher == "milenas" else {}
        return cls({**weights_of(supernet_model(task, options)), **alpha}, {}, space.full(), tuple(range(count)))

    def state(self) -> State:
        meta = {"arch": self.arch.to_plain(), "open": list(self.open), "decisions": list(self.decisions)}
        momentum = {f"{MOMENTUM}{name}": buffer for name, buffer in self.momentum.items()}
        return State({**self.weights, **momentum}, {**meta, "pruned": self.pruned, "diverged": self.diverged})

    def decided(self, arch: Arch, made: Sequence[Decision], options: SpiderOptions, number: int) -> PrivateModel:
        """With decisions of round `number`. What died leaves weights and optimiser when v is next trained."""
        space = space_for(options)
        news = tuple({"round": number, **decision.to_json(space)} for decision in made)
        return replace(self, arch=arch, decisions=self.decisions + news)


@dataclass(frozen=True)
class Spider(Method):
    options: SpiderOptions

    fields = {"train": Fields(tensors=("*",), meta=("loss",), writes=True)}
    seals = ("*",)
    relays = True

    # The server: FedAvg of the supernet, and the schedule

    @property
    def least_samples(self) -> int:
        return least_samples(self.options.train_share)

    def check_rounds(self, rounds: float | None) -> None:
        o = self.options
        if rounds is None:
            if (o.t_s is None) != (o.tau is None):
                must = "t_s and tau must both be given, or neither, where the budget is not in rounds"
                raise FedloomError(must, f"got t_s={o.t_s} and tau={o.tau}", "give the other one too")
            return
        if o.due(int(rounds), rounds - 1, rounds) < o.events:
            rule = f"a schedule must leave a final phase after the {o.events} steps of the search"
            raise FedloomError(rule, f"{rounds:g} rounds are over before", self._advice())

    def _advice(self) -> str:
        """What gives a schedule its final phase."""
        advice = []
        if self.options.least_rounds is not None:
            advice.append(f"ask for at least {self.options.least_rounds} rounds")
        if (self.options.t_s, self.options.tau) != (None, None):
            advice.append("lower t_s and tau")
        return ", or ".join(advice) or "set t_s and tau"

    def init(self, setup: Setup, previous: State | None) -> State:
        if all(len(slot.options) < 2 for slot in space_for(self.options).slots):
            raise FedloomError("an op set must have at least two operations", "it has one", "try ops=s2")
        net = supernet_model(setup.task, self.options)
        return State(weights_of(net), {"parameters": [name for name, _ in net.named_parameters()]})

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        meta = {"lr": self.options.rate(r.progress), "due": self.options.due(r.number, r.spent, r.budget)}
        tensors = shared(state)
        return state, [Order(client, "train", tensors, meta) for client in r.cohort()]

    def note(self, state: State, r: Round) -> Meta:
        due = self.options.due(r.number, r.spent, r.budget)
        begun = self.options.searcher == "milenas"  # whose α moves from the first step
        return phase_of(due, self.options.events, begun=begun)

    @property
    def phases(self) -> Mapping[str, float]:
        return self.options.phases

    def merge(self, state: State, orders: Sequence[Order], replies: Collection[Reply], r: Round) -> State:
        return server_step(self.options, state, orders, replies)

    # A client: Algorithm 1

    def client(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> tuple[Reply, State | None]:
        """Lines 9–19. The steps on w and on v do not touch each other, so they may follow one another."""
        part, validation = data.split(self.options.train_share)
        used = data if order.meta["due"] == self.options.events else part
        w = supernet_model(run.task, self.options, weights=order.tensors)
        trained = train(w, used, self.options, order.meta["lr"], run)  # line 17
        reply = Reply(order.client, weights_of(w), len(used), {"loss": trained.loss})
        del w
        own_run = run.with_stream("own")
        with seeded(own_run.key("global")):  # v's draws begin at one place, whatever w's were
            private = PrivateModel.of(own, self.options, run.task)
            if self.options.pull == inf:
                private = replace(private, weights=order.tensors)
            private = self._search(private, order.meta["due"], validation, own_run)  # line 10
            return reply, self._improved(private, order, used, validation, own_run).state()

    def _improved(
        self, private: PrivateModel, order: Order, used: Samples, validation: Samples, run: ClientRun
    ) -> PrivateModel:
        """Line 18. The live part of w is known by the names that v still has."""
        o, net = self.options, self._model(private, run.task).to(run.device)
        if o.pull == inf:
            recalibrate(net, used, o, run)  # w's statistics are of all operations
            return replace(private, weights=weights_of(net))
        alpha = {f"{ALPHA}{name}": row for name, row in alpha_in(private.weights).items()}
        private = replace(private, weights={**{name: private.weights[name] for name in net.state_dict()}, **alpha})
        pull = pull_towards(order.tensors, o.pull) if o.pull else None
        try:
            if alpha:
                return self._by_gradient(private, net, order.meta["lr"], pull, used, validation, run)
            trained = train(net, used, o, order.meta["lr"], run, momentum=private.momentum, after_backward=pull)
        except FloatingPointError:  # to refuse the reply would tell of v: v stays as it was
            return replace(private, momentum={}, diverged=private.diverged + 1)
        return replace(private, weights=weights_of(net), momentum=trained.momentum)

    # A client: Algorithm 2, and appendix C

    def _search(self, private: PrivateModel, due: int, validation: Samples, run: ClientRun) -> PrivateModel:
        """All that fell due since this client was last here."""
        o, space = self.options, space_for(self.options)
        if o.searcher == "milenas":
            return self._derived(private, run) if due and alpha_in(private.weights) else private
        edges = perturbation.edges(space, paired=o.edges == "paired")
        score, draw = self._scorer(private, validation, run), run.rng("edges")
        while private.open and len(edges) - len(private.open) < due:
            chosen = private.open[int(torch.randint(len(private.open), (), generator=draw))]  # line 4
            found = perturbation.decide(private.arch, edges[chosen], score, o.keep)
            private = replace(private.decided(*found, o, run.round), open=tuple(e for e in private.open if e != chosen))
        if o.prune_edges and due == o.events and not private.pruned:
            private = replace(
                private.decided(*perturbation.prune(space, private.arch, score, o.keep), o, run.round), pruned=True
            )
        return private

    def _scorer(self, private: PrivateModel, validation: Samples, run: ClientRun) -> Scorer:
        """On a copy of v: BN with batch statistics would change its running ones. Built when it is first asked."""
        if self.options.search == "random":
            return perturbation.by_chance(run.rng("chance"))

        @cache
        def measured() -> Scorer:
            net = self._model(private, run.task).to(run.device)
            training_mode(net, self.options.bn)
            return perturbation.by_validation(net, validation.to(run.device), self.options.batch)

        return lambda archs: measured()(archs) if archs else []

    def _by_gradient(
        self, private: PrivateModel, net: Model, lr: float, pull: AfterBackward | None, used: Samples,
        validation: Samples, run: ClientRun,
    ) -> PrivateModel:  # fmt: skip
        """Appendix C: MiLeNAS on (v, α), a step of α with every step of v."""
        o = self.options
        alpha = {
            name: row.to(run.device, copy=True).requires_grad_() for name, row in alpha_in(private.weights).items()
        }
        of_v, of_alpha = sgd(net, o, lr, private.momentum), Sgd(alpha, o.alpha_lr)
        searcher = MiLeNAS(
            net, alpha, Mixed(net, alpha).mix, of_v, of_alpha, lam=o.alpha_lam, clip=o.clip, order="simultaneous",
            after_backward=pull,
        )  # fmt: skip
        training_mode(net, o.bn)
        checks = endless(validation.to(run.device), o.batch, run.rng("validation batches"))
        losses = [searcher.step(batch, next(checks)) for batch in training_batches(used, o, run)]
        rows = {f"{ALPHA}{name}": row.detach().cpu().clone() for name, row in alpha.items()}
        found = {**weights_of(net), **rows}
        converging(sum(losses) / max(1, len(losses)), found)
        return replace(private, weights=found, momentum=remembered(of_v))

    def _derived(self, private: PrivateModel, run: ClientRun) -> PrivateModel:
        o, chance = self.options, run.rng("chance")
        rows = list(alpha_in(private.weights).values())
        if o.search == "random":
            rows = [torch.rand(len(row), generator=chance) for row in rows]
        made = perturbation.by_strength(space_for(o), [torch.softmax(row, 0) for row in rows], pruned=o.prune_edges)
        left = {name: tensor for name, tensor in private.weights.items() if not name.startswith(ALPHA)}
        return replace(private.decided(perturbation.applied(private.arch, made), made, o, run.round), weights=left)

    # What is evaluated, and observed

    def _model(self, private: PrivateModel, task: Task) -> Model:
        return supernet_model(task, self.options, arch=private.arch, weights=private.weights)

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        if own is None:
            return supernet_model(run.task, self.options, weights=order.tensors)
        private = PrivateModel.of(own, self.options, run.task)
        alpha, net = alpha_in(private.weights), self._model(private, run.task)
        if alpha:
            return Mixed(net, alpha)
        return plain(net) if all(len(live) < 2 for live in private.arch.choice) else net

    def observe(self, own: State, number: int) -> Json:
        """The decisions of this round, for the report of a simulation."""
        news = [decision for decision in own.meta["decisions"] if decision["round"] == number]
        diverged = {"diverged": own.meta["diverged"]} if own.meta["diverged"] else {}
        return {"decisions": news, **diverged} if news or diverged else None


def stages(task: Task) -> tuple[Stage, ...]:
    return (Stage("train", Spider(SpiderOptions(**task.options))),)


spider = Recipe(
    "SPIDER (Mushtaq et al. 2023): a network of its own for every client, found by perturbation",
    SpiderOptions,
    stages,
    short="search",
)
