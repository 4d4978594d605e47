import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedloom.cost.meter import Meter
from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import ClientRun
from fedloom.learning.optimizers import remembered
from fedloom.learning.training import (
    TrainingOptions,
    model,
    sgd,
    train,
    training_batches,
    training_mode,
    weights_of,
)
from fedloom.nets.model import seeded
from fedloom.testing.toy import Toy, samples

OPTIONS = TrainingOptions(width=0.125, batch=4, epochs=1, lr=0.1, momentum=0.9, weight_decay=0.0)


@pytest.fixture
def run():
    return client_run()


def client_run(number: int = 1) -> ClientRun:
    return ClientRun(Toy.of("fedavg").task, "train", number, 0, 0, "cpu", lambda: b"")


def net_of(options: TrainingOptions = OPTIONS):
    return model(Toy.of("fedavg").task, options)


def changed(options: TrainingOptions = OPTIONS, **values) -> TrainingOptions:
    return options.model_copy(update=values)


def unequal(one, other) -> list[str]:
    assert one.keys() == other.keys()
    return [name for name in one if not torch.equal(one[name], other[name])]


@pytest.mark.parametrize(("progress", "rate"), [(0, 0.1), (0.5, 0.05), (1 / 3, 0.075), (1, 0)])
def test_the_cosine_schedule_goes_from_lr_to_zero(progress, rate):
    assert changed(schedule="cosine").rate(progress) == pytest.approx(rate)


@pytest.mark.parametrize("progress", [0, 0.5, 1])
def test_a_constant_schedule_stays(progress):
    assert changed(schedule="constant").rate(progress) == 0.1


def test_the_clip_acts_on_the_norm_of_all_gradients(run):
    """Without momentum and decay, a step of rate 1 is exactly the clipped gradient."""
    data = samples(4, "clip")
    options = changed(momentum=0.0, clip=0.01)
    net = net_of()
    before = weights_of(net)
    train(net, data, options, 1.0, run)
    moved = [(value - before[name]).flatten() for name, value in net.named_parameters()]
    assert torch.cat(moved).norm().item() == pytest.approx(0.01, rel=1e-3)


def test_a_wide_clip_changes_nothing(run):
    data = samples(8, "clip")
    results = []
    for clip in (1e6, 1e9):
        net = net_of()
        train(net, data, changed(clip=clip), 0.01, run)
        results.append(weights_of(net))
    assert unequal(*results) == []


def test_weight_decay_pulls_to_zero(run):
    """With rate η and decay λ, one step differs from one without by −ηλw."""
    data = samples(4, "decay")
    options = changed(momentum=0.0, clip=1e9)
    plain = net_of()
    decayed = net_of()
    start = weights_of(net_of())
    train(plain, data, options, 0.1, run)
    train(decayed, data, changed(options, weight_decay=0.5), 0.1, run)
    name = "net.classifier.weight"
    gap = weights_of(decayed)[name] - weights_of(plain)[name]
    torch.testing.assert_close(gap, -0.1 * 0.5 * start[name], rtol=1e-4, atol=1e-7)


def statistics(net) -> dict[str, torch.Tensor]:
    return {
        name: value
        for name, value in weights_of(net).items()
        if "running" in name or "tracked" in name
    }


def test_frozen_bn_leaves_its_statistics(run):
    net = net_of()
    before = statistics(net)
    start = weights_of(net)
    train(net, samples(8, "bn"), changed(bn="frozen"), 0.1, run)
    assert len(before) == 9 and unequal(statistics(net), before) == []
    assert "net.features.1.weight" in unequal(
        weights_of(net), start
    )  # its scale learns all the same


def test_averaged_bn_moves_its_statistics(run):
    net = net_of()
    before = statistics(net)
    train(net, samples(8, "bn"), OPTIONS, 0.1, run)
    assert sorted(unequal(statistics(net), before)) == sorted(before)
    assert statistics(net)["net.features.1.num_batches_tracked"].item() == 2


def test_training_mode_freezes_only_bn():
    net = nn.Sequential(nn.Dropout(), nn.BatchNorm2d(1), nn.Sequential(nn.BatchNorm1d(1)))
    training_mode(net.eval(), "frozen")
    assert [part.training for part in net.modules()] == [True, True, False, True, False]
    training_mode(net, "averaged")
    assert all(part.training for part in net.modules())


def test_momentum_goes_on_by_name():
    """Two rounds with it are one run of one optimiser, to the bit; without it they are not."""
    data = samples(8, "momentum")
    net = net_of()
    reset = net_of()
    whole = net_of()
    first = train(net, data, OPTIONS, 0.1, client_run(1))
    train(net, data, OPTIONS, 0.1, client_run(2), momentum=first.momentum)
    train(reset, data, OPTIONS, 0.1, client_run(1))
    train(reset, data, OPTIONS, 0.1, client_run(2))
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.1, momentum=0.9)
    for number in (1, 2):
        for chosen in torch.randperm(8, generator=client_run(number).rng("batches")).split(4):
            optimizer.zero_grad()
            functional.cross_entropy(whole(data.x[chosen]), data.y[chosen]).backward()
            nn.utils.clip_grad_norm_(whole.parameters(), 5.0)
            optimizer.step()
    assert unequal(weights_of(net), weights_of(whole)) == []
    assert unequal(weights_of(reset), weights_of(whole)) != []


def test_momentum_of_other_names_is_left_out():
    """Operations get dropped: momentum without a parameter is ignored.

    A parameter without momentum starts without it.
    """
    net = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(1.0)
    optimizer = sgd(
        net, OPTIONS, 0.5, {"1.weight": torch.tensor([[2.0]]), "gone.weight": torch.ones(3)}
    )
    net(torch.ones(1, 1)).sum().backward()  # both gradients are 1
    optimizer.step()
    assert net[0].weight.item() == 1 - 0.5 * 1
    assert net[1].weight.item() == pytest.approx(1 - 0.5 * (0.9 * 2 + 1))
    assert {name: value.item() for name, value in remembered(optimizer).items()} == pytest.approx(
        {"0.weight": 1.0, "1.weight": 2.8}
    )


def test_given_momentum_is_copied():
    momentum = {"0.weight": torch.ones(1, 1)}
    net = nn.Sequential(nn.Linear(1, 1, bias=False))
    optimizer = sgd(net, OPTIONS, 0.5, momentum)
    net(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    assert momentum["0.weight"].item() == 1


def test_without_momentum_there_is_no_buffer(run):
    assert train(net_of(), samples(4, "none"), changed(momentum=0.0), 0.1, run).momentum == {}


@pytest.mark.parametrize(
    ("count", "size", "sizes"),
    [
        (9, 4, [4, 4]),
        (8, 4, [4, 4]),
        (7, 4, [4, 3]),
        (1, 4, [1]),
        (3, 1, [1, 1, 1]),
        (5, 8, [5]),
        (0, 4, []),
    ],
)
def test_a_last_batch_of_one_is_skipped(count, size, sizes):
    """Unless there is only that one, or batches of one were asked for."""
    data = Samples(torch.arange(count), torch.arange(count))
    batches = list(data.batches(size, torch.Generator().manual_seed(0)))
    assert [len(batch) for batch in batches] == sizes
    numbers = []
    for batch in batches:
        numbers += batch.x.tolist()
        assert torch.equal(batch.x, batch.y)
    assert len(numbers) == len(set(numbers)) == sum(sizes)


def test_the_loss_is_the_mean_over_the_samples_seen(run):
    """At rate 0 (and frozen BN) nothing moves, so it is the loss of the network given."""
    # batches of 4 and 3: their plain mean would be another
    data = samples(7, "loss")
    net = net_of()
    loss = train(net, data, changed(bn="frozen", weight_decay=0.0), 0.0, run).loss
    training_mode(net, "frozen")
    with torch.no_grad():
        assert loss == pytest.approx(functional.cross_entropy(net(data.x), data.y).item(), rel=1e-5)


def test_no_samples_make_no_step(run):
    net = net_of()
    before = weights_of(net)
    trained = train(net, samples(0, "none"), OPTIONS, 0.1, run)
    assert trained.loss == 0 and trained.momentum == {} and unequal(weights_of(net), before) == []


def test_batches_are_drawn_by_round_and_client():
    data = samples(8, "draws")
    results = []
    for run in (client_run(1), client_run(1), client_run(2), replace(client_run(1), identity=1)):
        net = net_of()
        train(net, data, OPTIONS, 0.1, run)
        results.append(weights_of(net))
    same, again, later, other = results
    assert unequal(same, again) == []
    assert unequal(same, later) and unequal(same, other)


def test_epochs_pass_over_all_the_data(run):
    net = net_of()
    train(net, samples(8, "epochs"), changed(epochs=3), 0.1, run)
    assert net.state_dict()["net.features.1.num_batches_tracked"].item() == 3 * 2


def test_after_backward_sees_every_gradient_before_the_clip(run):
    norms = []

    def look(net: nn.Module) -> None:
        norms.append(
            math.sqrt(sum(parameter.grad.square().sum().item() for parameter in net.parameters()))
        )

    train(net_of(), samples(8, "after"), changed(clip=1e-6), 0.1, run, after_backward=look)
    assert len(norms) == 2 and min(norms) > 1e-3


def test_weights_are_copies():
    net = net_of()
    taken = weights_of(net)
    expected = {name: value.clone() for name, value in taken.items()}
    with torch.no_grad():
        for value in net.state_dict().values():
            value += 1
    assert unequal(taken, expected) == []
    assert all(not value.requires_grad for value in taken.values())
    assert set(taken) == set(net.state_dict())


def test_given_weights_are_loaded_and_not_shared():
    with seeded(99):
        weights = {
            name: torch.rand_like(value.float()).to(value.dtype)
            for name, value in weights_of(net_of()).items()
        }
    net = model(Toy.of("fedavg").task, OPTIONS, weights)
    assert unequal(weights_of(net), weights) == []
    with torch.no_grad():
        next(net.parameters()).zero_()
    assert weights["net.features.0.weight"].any()


# Augmentation


def augmented(data, run, text, **values):
    return list(training_batches(data, changed(augment=text, **values), run))


def test_augmenting_changes_the_inputs_and_nothing_else(run):
    """The batches, their order and their labels are the same, whatever the augmentation is."""
    data = samples(10, "augment")
    plain = augmented(data, run, "none", epochs=2)
    for text in ("flip", "crop:2+cutout:3"):
        other = augmented(data, run, text, epochs=2)
        assert [batch.y.tolist() for batch in other] == [batch.y.tolist() for batch in plain]
        assert any(not torch.equal(a.x, b.x) for a, b in zip(other, plain, strict=True))
    flipped = augmented(data, run, "flip", epochs=2)
    for a, b in zip(flipped, plain, strict=True):
        assert all(
            torch.equal(x, y) or torch.equal(x, y.flip(2)) for x, y in zip(a.x, b.x, strict=True)
        )


def test_every_epoch_round_and_client_draws_anew(run):
    data = samples(8, "anew")
    whole = {"batch": 8, "momentum": 0.0}

    def sorted_sums(batch):
        return batch.x.flatten(1).sum(1).sort().values.tolist()

    first, second = (
        sorted_sums(batch) for batch in augmented(data, run, "cutout:3", epochs=2, **whole)
    )
    third = sorted_sums(augmented(data, client_run(2), "cutout:3", **whole)[0])
    fourth = sorted_sums(augmented(data, replace(run, identity=1), "cutout:3", **whole)[0])
    again = sorted_sums(augmented(data, client_run(), "cutout:3", **whole)[0])
    assert again == first and len({tuple(sums) for sums in (first, second, third, fourth)}) == 4


def test_cutout_leaves_the_mean_of_the_data_set(run):
    """Which the network sees as zeros."""
    data = samples(6, "hole")
    holes = augmented(data, run, "cutout:6", batch=6)[0].x
    assert torch.all((holes == 100.0) | torch.isin(holes, data.x)) and (holes == 100.0).sum() > 6


@pytest.mark.parametrize("text", ["none", "crop:1+flip+cutout:2+rotate:20", "randaugment:2:9"])
def test_augmenting_is_not_counted_as_the_networks_work(run, text):
    data = samples(8, "meter")
    data = Samples(data.x.clamp(0, 255), data.y)
    with Meter() as meter:
        train(net_of(), data, changed(augment=text), 0.1, run)
    with Meter() as plain:
        train(net_of(), data, OPTIONS, 0.1, run)
    assert meter.macs == plain.macs > 0


def test_training_follows_the_augmentation(run):
    data = samples(8, "follows")
    nets = [net_of() for _ in range(3)]
    for net, text in zip(nets, ("flip", "flip", "none"), strict=True):
        train(net, data, changed(augment=text), 0.1, run)
    assert unequal(weights_of(nets[0]), weights_of(nets[1])) == []
    assert unequal(weights_of(nets[0]), weights_of(nets[2])) != []


def test_an_augmentation_that_cannot_be_read_is_no_option():
    with pytest.raises(FedloomError, match="must be a known name, but got 'flop'; did you mean"):
        TrainingOptions(augment="flop")


def test_a_client_refuses_what_its_data_do_not_fit(run):
    with pytest.raises(FedloomError, match="hue must have images of 3 channels, but they have 1"):
        augmented(samples(4, "grey"), run, "hue:0.1")
