"""SPIDER: Mushtaq, He, Ding, Avestimehr, "Distributed Architecture Search Over Heterogeneous
Distributions", TMLR 2023.

Every client has two models: the shared supernet w, trained by FedAvg, and its own (v_k, A_k). The
latter begins as the same supernet. It is pulled towards the received w wherever its operations are
alive (Algorithm 1), and it is cut down edge by edge by the client's validation data (Algorithm 2).
Nothing of v_k and A_k leaves the client or shows in its reply.

The client's search is in spider_search.py, its private model in spider_private.py.

There are three phases: warm-up, search, and final training, which uses the validation data too.
They follow the schedule, never A_k. `searcher = "milenas"` is appendix C. `search = "random"` is
the control: the same, with random decisions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from torch import nn

from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import ClientRun, Method, Recipe, Stage, shared
from fedloom.learning.averaging import server_step
from fedloom.learning.proximal import pull_towards
from fedloom.learning.training import least_samples, recalibrate, train, weights_of
from fedloom.methods.spider_options import SpiderOptions
from fedloom.methods.spider_private import PrivateModel, decisions_of
from fedloom.methods.spider_search import trained_by_gradient, with_due_decisions
from fedloom.nets.model import seeded
from fedloom.searchers.schedule import phase_of
from fedloom.spaces import space_for
from fedloom.spaces.asking import shown
from fedloom.spaces.mixed import Mixed, plain, supernet_model
from fedloom.types import Fields, Json, Meta, Order, Reply, Round, Setup, State, Task


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
        # By gradients, α is trained from the first step on.
        return phase_of(due, self.options.events, has_started=self.options.by_gradient)

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
            private = with_due_decisions(  # line 10
                private, order.meta["due"], parts.validation, self.options, own_run
            )
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
        v = private.network(options, run.task).to(run.device)
        if options.pull == inf:
            # The BN statistics of w are those of a network with all operations.
            recalibrate(v, parts.training, options, run)
            return replace(private, weights=weights_of(v))
        private = private.without_dead_weights(v)
        pull = None
        if options.pull:
            pull = pull_towards(order.tensors, options.pull)
        lr = order.meta["lr"]
        try:
            if private.alpha:
                return trained_by_gradient(
                    private, v, lr, pull, parts.training, parts.validation, options, run
                )
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

    # Evaluation and observation

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        if own is None:
            return supernet_model(run.task, self.options, weights=order.tensors)
        private = PrivateModel.of(own, self.options, run.task)
        v = private.network(self.options, run.task)
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


def stages(task: Task) -> tuple[Stage, ...]:
    return (Stage("train", Spider(SpiderOptions(**task.options))),)


spider = Recipe(
    "SPIDER (Mushtaq et al. 2023): a personal network for every client, searched by perturbation",
    SpiderOptions,
    stages,
    short="search",
)
