"""SPIDER: Mushtaq, He, Ding, Avestimehr, "Distributed Architecture Search Over Heterogeneous
Distributions", TMLR 2023.

Every client has two models: the shared supernet w, trained by FedAvg, and its own (v_k, A_k). The
latter begins as the same supernet. It is pulled towards the received w wherever its operations are
alive (Algorithm 1), and it is cut down edge by edge by the client's validation data (Algorithm 2).
Nothing of v_k and A_k leaves the client or shows in its reply.

There are three phases: warm-up, search, and final training, which uses the validation data too.
They follow the schedule, never A_k. `searcher = "milenas"` is appendix C. `search = "random"` is
the control: the same, with random decisions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf

import torch
from torch import nn

from fedloom.cost.meter import searching
from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import ClientRun, Method, Recipe, Stage, shared
from fedloom.learning.averaging import server_step
from fedloom.learning.optimizers import Sgd, remembered
from fedloom.learning.private_state import momentum_in, weights_in, with_prefix
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
from fedloom.records.decision import NotedDecision
from fedloom.searchers import perturbation
from fedloom.searchers.milenas import MiLeNAS, endless
from fedloom.searchers.perturbation import Decision, Score, Scorer
from fedloom.searchers.schedule import phase_of
from fedloom.spaces import space_for
from fedloom.spaces.asking import shown
from fedloom.spaces.mixed import Mixed, alpha_in, fresh_alpha, plain, supernet_model
from fedloom.types import (
    ALPHA,
    Arch,
    Fields,
    Json,
    Meta,
    Order,
    Reply,
    Round,
    Setup,
    State,
    Task,
    Tensors,
)


@dataclass(frozen=True)
class PrivateModel:
    """A client's private state: v_k, its optimiser, A_k and the decisions that led to A_k."""

    weights: Tensors
    momentum: Tensors
    arch: Arch
    open_edges: tuple[int, ...]  # still to be decided
    decisions: tuple[NotedDecision, ...] = ()
    pruned: bool = False
    diverged: int = 0  # rounds whose training of v was undone

    @classmethod
    def of(cls, own: State | None, options: SpiderOptions, task: Task) -> PrivateModel:
        if own is None:
            return cls.first(options, task)
        return cls(
            weights=weights_in(own),
            momentum=momentum_in(own),
            arch=Arch.from_plain(own.meta["arch"]),
            open_edges=tuple(own.meta["open"]),
            decisions=decisions_of(own),
            pruned=own.meta["pruned"],
            diverged=own.meta["diverged"],
        )

    @classmethod
    def first(cls, options: SpiderOptions, task: Task) -> PrivateModel:
        """Returns the model before a client's first round: v starts from the seed, not from w."""
        weights = weights_of(supernet_model(task, options))
        edges = len(options.slot_groups)
        if options.by_gradient:  # α decides on all edges at once
            weights |= fresh_alpha(options, task.seed)
            edges = 0
        return cls(weights, {}, space_for(options).full(), tuple(range(edges)))

    def state(self) -> State:
        meta = {
            "arch": self.arch.to_plain(),
            "open": list(self.open_edges),
            "decisions": [decision.to_json() for decision in self.decisions],
            "pruned": self.pruned,
            "diverged": self.diverged,
        }
        return State({**self.weights, **with_prefix(MOMENTUM, self.momentum)}, meta)

    def decided(
        self,
        arch: Arch,
        decisions: Sequence[Decision],
        options: SpiderOptions,
        number: int,
    ) -> PrivateModel:
        """Returns the model with the decisions of round `number`.

        Weights and momentum of dead operations are removed when v is next trained.
        """
        space = space_for(options)
        new_decisions = tuple(decision.noted(space, number) for decision in decisions)
        return replace(self, arch=arch, decisions=self.decisions + new_decisions)

    @property
    def alpha(self) -> dict[str, torch.Tensor]:
        """The architecture parameters of appendix C, until a network is derived from them."""
        return alpha_in(self.weights)


def decisions_of(own: State) -> tuple[NotedDecision, ...]:
    return tuple(NotedDecision.checked(noted, {}) for noted in own.meta["decisions"])


@dataclass(frozen=True)
class Parts:
    """A client's data in one round."""

    training: Samples
    validation: Samples


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
        if rounds is None:
            self._check_pair()
            return
        steps = self.options.events
        if self.options.due(int(rounds), rounds - 1, rounds) < steps:
            rule = f"a schedule must leave a final phase after the {steps} steps of the search"
            raise FedloomError(rule, f"{rounds:g} rounds end before that", self._advice())

    def _check_pair(self) -> None:
        """Without a number of rounds, t_s needs tau and the reverse: their defaults are rounds."""
        t_s = self.options.t_s
        tau = self.options.tau
        if (t_s is None) != (tau is None):
            rule = "t_s and tau must both be given, or neither, if the budget is not in rounds"
            raise FedloomError(rule, f"got t_s={t_s} and tau={tau}", "give the other one too")

    def _advice(self) -> str:
        """Returns what to do so that the schedule has a final phase."""
        advice = []
        if self.options.least_rounds is not None:
            advice.append(f"ask for at least {self.options.least_rounds} rounds")
        if self.options.has_own_schedule:
            advice.append("lower t_s and tau")
        if not advice:
            return "set t_s and tau"
        return ", or ".join(advice)

    def init(self, setup: Setup, previous: State | None) -> State:
        space = space_for(self.options)
        if all(len(slot.options) < 2 for slot in space.slots):
            rule = f"the search space {shown(space.title)} must leave something to choose"
            advice = "choose another space, or other parameters of it"
            raise FedloomError(rule, "every slot has one option", advice)
        w = supernet_model(setup.task, self.options)
        parameters = [name for name, _ in w.named_parameters()]
        return State(weights_of(w), {"parameters": parameters})

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        due = self.options.due(r.number, r.spent, r.budget)
        meta = {"lr": self.options.rate(r.progress), "due": due}
        tensors = shared(state)
        return state, [Order(client, "train", tensors, meta) for client in r.cohort()]

    def note(self, state: State, r: Round) -> Meta:
        due = self.options.due(r.number, r.spent, r.budget)
        begun = self.options.by_gradient  # then α is trained from the first step on
        return phase_of(due, self.options.events, begun=begun)

    @property
    def phases(self) -> Mapping[str, float]:
        return self.options.phases

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        return server_step(self.options, state, orders, replies)

    # A client: Algorithm 1, lines 9–19

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        """Trains w, then v. The steps are independent, so they need not alternate."""
        parts = self._parts(data, order.meta["due"])
        reply = self._train_shared(order, parts.training, run)
        own_run = run.with_stream("own")
        with seeded(own_run.key("global")):  # v's random draws do not depend on those of w
            private = PrivateModel.of(own, self.options, run.task)
            if self.options.pull == inf:  # v is w
                private = replace(private, weights=order.tensors)
            private = self._search(private, order.meta["due"], parts.validation, own_run)  # line 10
            private = self._train_private(private, order, parts, own_run)  # line 18
        return reply, private.state()

    def _parts(self, data: Samples, due: int) -> Parts:
        """Divides the data. Once everything is decided, all of it is trained on."""
        training, validation = data.split(self.options.train_share)
        if due == self.options.events:
            training = data
        return Parts(training, validation)

    def _train_shared(self, order: Order, training: Samples, run: ClientRun) -> Reply:
        """Trains w ← w − η∇F_k(w), as in FedAvg (line 17)."""
        w = supernet_model(run.task, self.options, weights=order.tensors)
        trained = train(w, training, self.options, order.meta["lr"], run)
        return Reply(order.client, weights_of(w), len(training), {"loss": trained.loss})

    def _train_private(
        self,
        private: PrivateModel,
        order: Order,
        parts: Parts,
        run: ClientRun,
    ) -> PrivateModel:
        """Trains v ← v − η(∇F_k(v) + λ(v − w)), with the live part of w (line 18, Eq. 4).

        That part consists of the tensors whose names v still has.
        """
        options = self.options
        v = self._model(private, run.task).to(run.device)
        if options.pull == inf:
            # The BN statistics of w are those of a network with all operations.
            recalibrate(v, parts.training, options, run)
            return replace(private, weights=weights_of(v))
        private = without_dead_weights(private, v)
        pull = pull_towards(order.tensors, options.pull) if options.pull else None
        lr = order.meta["lr"]
        try:
            if private.alpha:
                return self._train_by_gradient(private, v, lr, pull, parts, run)
            trained = train(
                v,
                parts.training,
                options,
                lr,
                run,
                momentum=private.momentum,
                after_backward=pull,
            )
        except FloatingPointError:  # a refused reply would reveal this, so v just stays as it was
            return replace(private, momentum={}, diverged=private.diverged + 1)
        return replace(private, weights=weights_of(v), momentum=trained.momentum)

    # A client: Algorithm 2, the search by perturbation

    def _search(
        self,
        private: PrivateModel,
        due: int,
        validation: Samples,
        run: ClientRun,
    ) -> PrivateModel:
        """Decides all that has become due since this client's last round."""
        with searching():
            return self._searched(private, due, validation, run)

    def _searched(
        self,
        private: PrivateModel,
        due: int,
        validation: Samples,
        run: ClientRun,
    ) -> PrivateModel:
        if self.options.by_gradient:
            if due and private.alpha:
                return self._derive(private, run)
            return private
        score = self._scorer(private, validation, run)
        private = self._decide_edges(private, due, score, run)
        if self.options.prune_edges and due == self.options.events and not private.pruned:
            private = self._prune(private, score, run)
        return private

    def _decide_edges(
        self,
        private: PrivateModel,
        due: int,
        score: Scorer,
        run: ClientRun,
    ) -> PrivateModel:
        """Decides every edge that is due (lines 4–9)."""
        edges = self.options.slot_groups
        draw = run.rng("edges")
        while private.open_edges and len(edges) - len(private.open_edges) < due:
            position = int(torch.randint(len(private.open_edges), (), generator=draw))  # line 4
            edge = private.open_edges[position]
            slots = edges[edge]
            keep = self.options.keep
            arch, decisions = perturbation.decide(private.arch, slots, score, keep)  # lines 6–9
            private = private.decided(arch, decisions, self.options, run.round)
            still_open = tuple(other for other in private.open_edges if other != edge)
            private = replace(private, open_edges=still_open)
        return private

    def _prune(self, private: PrivateModel, score: Scorer, run: ClientRun) -> PrivateModel:
        """Every node keeps its strongest inputs."""
        space = space_for(self.options)
        arch, decisions = perturbation.prune(space, private.arch, score, self.options.keep)
        private = private.decided(arch, decisions, self.options, run.round)
        return replace(private, pruned=True)

    def _scorer(self, private: PrivateModel, validation: Samples, run: ClientRun) -> Scorer:
        """Returns a scorer of a copy of v: BN in training mode would change v's running statistics.

        The copy is built when the first score is needed.
        """
        if self.options.search == "random":
            return perturbation.by_chance(run.rng("chance"))

        @cache
        def scorer_of_copy() -> Scorer:
            v = self._model(private, run.task).to(run.device)
            training_mode(v, self.options.bn)
            return perturbation.by_validation(v, validation.to(run.device), self.options.batch)

        def score(archs: Sequence[Arch]) -> list[Score]:
            if not archs:
                return []
            return scorer_of_copy()(archs)

        return score

    # A client: appendix C, the search by gradient

    def _train_by_gradient(
        self,
        private: PrivateModel,
        v: Model,
        lr: float,
        pull: AfterBackward | None,
        parts: Parts,
        run: ClientRun,
    ) -> PrivateModel:
        """Trains (v, α) by MiLeNAS, with a step of α for every step of v."""
        options = self.options
        alpha = {}
        for name, row in private.alpha.items():
            alpha[name] = row.to(run.device, copy=True).requires_grad_()
        v_optimizer = sgd(v, options, lr, private.momentum)
        mixed = Mixed(v, alpha)
        searcher = MiLeNAS(
            v,
            alpha,
            mixed.mix_to_train,
            v_optimizer,
            Sgd(alpha, options.alpha_lr),
            lam=options.alpha_lam,
            clip=options.clip,
            order="simultaneous",
            forward_both=mixed.mix_both_to_train,
            after_backward=pull,
        )
        training_mode(v, options.bn)
        validation = endless(
            parts.validation.to(run.device),
            options.batch,
            run.rng("validation batches"),
        )
        losses = []
        for batch in training_batches(parts.training, options, run):
            losses.append(searcher.step(batch, next(validation)))
        weights = weights_of(v)
        for name, row in alpha.items():
            weights[f"{ALPHA}{name}"] = row.detach().cpu().clone()
        converging(sum(losses) / max(1, len(losses)), weights)
        return replace(private, weights=weights, momentum=remembered(v_optimizer))

    def _derive(self, private: PrivateModel, run: ClientRun) -> PrivateModel:
        """Derives the network from α, which is not needed any more."""
        options = self.options
        rows = list(private.alpha.values())
        if options.search == "random":
            chance = run.rng("chance")
            rows = [torch.rand(len(row), generator=chance) for row in rows]
        strength = [torch.softmax(row, 0) for row in rows]
        space = space_for(options)
        decisions = perturbation.by_strength(space, strength, pruned=options.prune_edges)
        arch = perturbation.applied(private.arch, decisions)
        weights = {}
        for name, tensor in private.weights.items():
            if not name.startswith(ALPHA):
                weights[name] = tensor
        private = private.decided(arch, decisions, options, run.round)
        return replace(private, weights=weights)

    # Evaluation and observation

    def _model(self, private: PrivateModel, task: Task) -> Model:
        return supernet_model(task, self.options, arch=private.arch, weights=private.weights)

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        if own is None:
            return supernet_model(run.task, self.options, weights=order.tensors)
        private = PrivateModel.of(own, self.options, run.task)
        v = self._model(private, run.task)
        if private.alpha:
            return Mixed(v, private.alpha)
        everything_decided = all(len(live) < 2 for live in private.arch.choice)
        if everything_decided:
            return plain(v)
        return v

    def observe(self, own: State, number: int) -> Json:
        """Returns the decisions of this round, for the report of a simulation."""
        decisions = []
        for decision in decisions_of(own):
            if decision.round == number:
                decisions.append(decision.to_json())
        diverged = own.meta["diverged"]
        if diverged:
            return {"decisions": decisions, "diverged": diverged}
        if decisions:
            return {"decisions": decisions}
        return None


def without_dead_weights(private: PrivateModel, v: Model) -> PrivateModel:
    """Returns the model with only α and the weights of operations that are alive."""
    weights = {name: private.weights[name] for name in v.state_dict()}
    return replace(private, weights={**weights, **with_prefix(ALPHA, private.alpha)})


def stages(task: Task) -> tuple[Stage, ...]:
    return (Stage("train", Spider(SpiderOptions(**task.options))),)


spider = Recipe(
    "SPIDER (Mushtaq et al. 2023): a personal network for every client, searched by perturbation",
    SpiderOptions,
    stages,
    short="search",
)
