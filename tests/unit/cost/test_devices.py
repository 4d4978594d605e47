"""The clients' devices: phones by the seed, or a file."""

import json
from pathlib import Path
from statistics import mean

import pytest

from fedloom.cost.devices import (
    Device,
    cut_normal,
    devices_of,
    read_devices,
    read_phones,
    tiers_by_speed,
)
from fedloom.errors import FedloomError

FACTS = Path(__file__).parents[3].parent / "shared" / "data" / "device"
HEAD = "client,macs_per_second,lan,wan_down,wan_up"


def test_equal_devices() -> None:
    assert devices_of("equal", 3, seed=7) == [Device(1e9, 12.5e6, 1.25e6, 1.25e6)] * 3


def test_phones_have_the_real_spread() -> None:
    phones = devices_of("phones", 2000, seed=0)
    speeds = sorted(phone.macs_per_second for phone in phones)
    assert mean(speeds) == pytest.approx(1e9, rel=0.03)
    scores = read_phones().scores
    assert speeds[0] == pytest.approx(1e9 * scores[0] / mean(scores))
    assert speeds[-1] / speeds[0] == pytest.approx(scores[-1] / scores[0])
    assert {phone.lan for phone in phones} == {12.5e6}
    # The mean of the 19 means, a little more as links are cut below.
    links = read_phones().links
    assert mean(phone.wan_down for phone in phones) == pytest.approx(
        125 * mean(link.down for link in links), rel=0.06
    )
    assert min(phone.wan_up for phone in phones) >= 125 * 0.1 * min(link.up for link in links)


def test_a_clients_phone_is_the_seeds_alone() -> None:
    assert devices_of("phones", 9, seed=3)[:4] == devices_of("phones", 4, seed=3)
    assert devices_of("phones", 4, seed=4) != devices_of("phones", 4, seed=3)


def test_a_link_is_cut_at_a_tenth_of_its_mean() -> None:
    assert cut_normal(100, 20, 1.5) == 130
    assert cut_normal(100, 20, -4.9) == 10


@pytest.mark.skipif(not FACTS.is_dir(), reason="the measured facts are not here")
def test_the_table_is_made_of_the_facts() -> None:
    of_phones = json.loads((FACTS / "ai_benchmark_devices_2020.json").read_text())
    assert sorted(int(phone["CPU_F_AI_Score"]) for phone in of_phones) == list(read_phones().scores)
    of_links = json.loads((FACTS / "network_speed_distribution.json").read_text()).values()
    names = ("down_u", "down_sigma", "up_u", "up_sigma")
    rounded = []
    for link in of_links:
        rounded.append(tuple(round(link[name]) for name in names))
    assert sorted(rounded) == [tuple(link) for link in read_phones().links]


def test_a_file_of_devices(tmp_path: Path) -> None:
    file = tmp_path / "devices.csv"
    file.write_text(f"{HEAD},place\n1,2e9,1e6,5,6,north\n0,1e9,1e6,3,4,\n")
    assert devices_of(str(file), 2, seed=0) == [
        Device(1e9, 1e6, 3, 4),
        Device(2e9, 1e6, 5, 6, "north"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is empty"),
        ("client,speed\n0,1\n", "it begins with client, speed"),
        (f"{HEAD}\n0,1,2,3\n", "line 2 of .* must have 5 values, but it has 4"),
        (
            f"{HEAD}\n0,0,1,1,1\n",
            "macs_per_second in line 2 of .* must be a number above 0, but got '0'",
        ),
        (f"{HEAD}\n0,1,1,nan,1\n", "wan_down in line 2 of .* number above 0, but got 'nan'"),
        (
            f"{HEAD}\n0,1,1,1,1\n\nx,1,1,1,1\n",
            "line 4 of .* must begin with a client's number, but got 'x'",
        ),
        (f"{HEAD}\n0,1,1,1,1\n0,1,1,1,1\n", "client 0 has two"),
        (f"{HEAD}\n0,1,1,1,1\n2,1,1,1,1\n", "client 1 has none"),
    ],
)
def test_a_bad_file_in_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "devices.csv"
    file.write_text(text)
    with pytest.raises(FedloomError, match=words):
        read_devices(file)


def test_a_file_for_other_clients_and_a_name_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "devices.csv"
    file.write_text(f"{HEAD}\n0,1,1,1,1\n")
    with pytest.raises(FedloomError, match="each of the 3 clients, but it has 1"):
        devices_of(str(file), 3, seed=0)
    with pytest.raises(FedloomError, match="did you mean phones"):
        devices_of("phone", 3, seed=0)
    with pytest.raises(FedloomError, match="there is none"):
        devices_of(str(tmp_path / "nowhere.csv"), 3, seed=0)


def test_the_slowest_are_in_the_first_tier() -> None:
    devices = [Device(speed) for speed in (5.0, 1.0, 4.0, 2.0, 3.0)]
    assert tiers_by_speed(devices, [0.4, 0.2, 0.4], seed=0) == [3, 1, 3, 1, 2]


def test_between_equal_devices_the_seed_decides() -> None:
    deals = {tuple(tiers_by_speed([Device()] * 8, [0.5, 0.5], seed)) for seed in range(5)}
    assert len(deals) > 1
    assert all(deal.count(1) == 4 for deal in deals)
