"""A contract that nothing can break promises nothing.

Each fault must be caught by the test that exists for it.
"""

from pathlib import Path

import pytest
import torch
from torch import nn

from fedloom.data.samples import ClientData, Samples
from fedloom.errors import RunStopped
from fedloom.federation.client.site import Site
from fedloom.federation.protocol.parcels import Parcel
from fedloom.federation.server import norms
from fedloom.federation.server.norms import excessive
from fedloom.federation.server.spool import Settled, Spool
from fedloom.nets.model import seeded
from fedloom.registry import load_module
from fedloom.testing import MethodContract, Toy, repeating
from fedloom.testing.choosing import Choosing, touched_by
from fedloom.testing.subject import _finished, _repeated
from fedloom.types import Arch

HERE = Path(__file__).parent
FAULTS = [
    ("noisy", "deterministic", {}),
    ("racing", "reply_order_is_irrelevant", {}),
    ("racing", "stopped_and_resumed", {"moments": ("work",)}),
    ("racing", "a_refused_reply_is_no_reply", {}),
    ("remembering", "no_memory_but_the_states", {}),
    ("remembering", "stopped_and_resumed", {"moments": ("round",)}),
    ("racing", "no_memory_but_the_states", {}),
    ("whispering", "no_memory_but_the_states", {}),
    ("shouting", "no_memory_but_the_states", {}),
    ("noisy", "clients_draw_only_from_the_seed_tree", {}),
    ("drawing", "server_draws_only_from_the_seed_tree", {}),
    ("summing", "merge_weights_sum_to_one", {}),
    ("summing", "identical_clients_are_one", {}),
    ("equal", "a_reply_without_weight_changes_nothing", {}),
    ("equal", "no_weight_at_all_keeps_the_state", {}),
    ("equal", "two_levels_are_one", {}),
    ("talkative", "declared_fields_cover_the_replies", {}),
    ("leaking", "sealed_state_leaves_no_trace", {}),
    ("tuning", "options_are_frozen_and_cross_the_wire", {}),
    ("tuning", "options_come_back_from_a_run_folder", {}),
    ("hoarding", "a_network_that_served_before_is_as_good_as_a_new_one", {}),
    ("scribbling", "a_client_leaves_its_samples_alone", {}),
]


def keep(promise, toy, folder, **more):
    """Run one test of the contract as pytest would."""
    test = getattr(MethodContract(), f"test_{promise}")
    names = test.__func__.__code__.co_varnames[: test.__func__.__code__.co_argcount]
    test(toy, **({"tmp_path": folder} if "tmp_path" in names else {}), **more)


@pytest.fixture(autouse=True)
def _anew():
    """Plain runs are run again, with the fault that a test plants, and forgotten afterwards."""
    _finished.cache_clear()
    _repeated.cache_clear()
    load_module.cache_clear()  # what a fault has left in its file is forgotten too
    yield
    _finished.cache_clear()
    _repeated.cache_clear()


@pytest.mark.parametrize(("fault", "promise", "more"), FAULTS)
def test_a_fault_is_found(fault, promise, more, tmp_path):
    toy = Toy.of(f"{HERE}/faulty.py:{fault}")
    with pytest.raises(AssertionError):
        keep(promise, toy, tmp_path, **more)


def test_a_failure_says_what_it_means_and_what_differs(tmp_path):
    with pytest.raises(AssertionError) as caught:
        keep("no_memory_but_the_states", Toy.of(f"{HERE}/faulty.py:whispering"), tmp_path)
    assert "goes into their orders" in str(caught.value)
    assert str(caught.value).endswith("\nDifferent: Whispering.told")


def test_a_race_is_found_only_by_running_it_otherwise(tmp_path):
    keep("deterministic", Toy.of(f"{HERE}/faulty.py:racing"), tmp_path)


def test_options_that_can_be_changed_are_found(tmp_path):
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        keep("options_are_frozen_and_cross_the_wire", Toy.of(f"{HERE}/faulty.py:loose"), tmp_path)


@pytest.fixture
def fedavg():
    return Toy.of("fedavg")


def test_a_site_that_shows_the_test_part_is_found(fedavg, tmp_path, monkeypatch):
    work = Site._work

    def peeking(self, order, method, data, own, run):
        seen = Samples(
            torch.cat([data.test.x, data.train.x[4:]]), torch.cat([data.test.y, data.train.y[4:]])
        )
        return work(self, order, method, ClientData(seen, data.validation, data.test), own, run)

    monkeypatch.setattr(Site, "_work", peeking)
    with pytest.raises(AssertionError, match="other samples"):
        keep("never_sees_the_test_part", fedavg, tmp_path)


def test_a_ledger_that_forgets_the_header_is_found(fedavg, tmp_path, monkeypatch):
    monkeypatch.setattr(Parcel, "size", property(lambda parcel: parcel.body.size))
    with pytest.raises(AssertionError):
        keep("ledger_is_the_payload", fedavg, tmp_path)


def test_a_bound_that_depends_on_how_often_it_is_asked_is_found(fedavg, tmp_path, monkeypatch):
    """A bound that judges replies as they arrive would judge a resumed round otherwise."""
    asked = []

    def wavering(sizes, factor):
        asked.append(sizes)
        return {} if len(asked) == 15 else excessive(sizes, factor)

    monkeypatch.setattr(norms, "excessive", wavering)
    with pytest.raises((AssertionError, RunStopped)):
        keep("an_absurd_update_is_no_reply", fedavg, tmp_path)
    assert len(asked) >= 15


def test_a_bound_that_is_off_is_found(fedavg, tmp_path, monkeypatch):
    monkeypatch.setattr(norms, "excessive", lambda sizes, factor: {})
    with pytest.raises((AssertionError, RunStopped)):
        keep("an_absurd_update_is_no_reply", fedavg, tmp_path)


def test_a_journal_that_loses_replies_is_found(fedavg, tmp_path, monkeypatch):
    """The run would stop at the first reply of a round for ever."""
    monkeypatch.setattr(Spool, "settled", lambda self, number, hop: Settled({}, []))
    monkeypatch.setattr(repeating, "MOST_STOPS", 30)
    with pytest.raises(AssertionError, match="must make progress"):
        keep("stopped_and_resumed", fedavg, tmp_path, moments=("reply",))


class Spoiled(nn.Module):
    """Two linear operations; the second one's weight has no owner, and a cut has the wrong one."""

    arch = Arch("two", ((0, 1),))

    def __init__(self):
        super().__init__()
        with seeded(0):
            self.ops = nn.ModuleList([nn.Linear(36, 3), nn.Linear(36, 3)])

    def forward(self, x, arch):
        return sum(self.ops[op](x.flatten(1) / 100) for op in arch.choice[0])

    def owner(self, name):
        return None if name == "ops.1.weight" else (0, int(name.split(".")[1]))

    def cut(self, arch):
        return nn.Sequential(nn.Flatten(), self.ops[1 - arch.choice[0][0]])


class Chosen(Choosing):
    def _supernets(self, toy):
        return [Spoiled()]

    def architectures(self, supernet):
        return [Arch("two", ((1,),))]


def test_touched_by_names_what_a_choice_moves(fedavg):
    data = fedavg.data[0].train
    assert touched_by(Spoiled(), Arch("two", ((1,),)), data.x, data.y) == {
        "ops.1.weight",
        "ops.1.bias",
    }


def test_a_key_without_owner_is_found(fedavg):
    with pytest.raises(AssertionError, match=r"slot 0, operation 1"):
        Chosen().test_every_searchable_key_has_an_owner(fedavg)


def test_a_wrong_cut_is_found(fedavg):
    with pytest.raises(AssertionError, match="not close"):
        Chosen().test_cut_is_the_supernet(fedavg)
