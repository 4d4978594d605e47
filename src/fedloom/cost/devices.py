"""The clients' devices: how fast each one computes, and how fast its links are.

There are three kinds of tables. `equal` gives every client the same device. `phones` draws a phone
for every client: its speed from the scores of 333 phones, its links from measurements on 19
(phones.json, which names its source). A CSV file lists the devices one by one:

    client,macs_per_second,lan,wan_down,wan_up,place
    0,1.2e9,12.5e6,700e3,400e3,north
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import NamedTuple

from fedloom import reading
from fedloom.cost.tiers import sizes_of_tiers
from fedloom.errors import FedloomError, unknown
from fedloom.rng import rng

EQUAL = "equal"
PHONES = "phones"
SPEED = 1e9  # MACs per second, of equal devices and of the average phone
LAN = 12.5e6  # bytes per second
WAN = 1.25e6
BYTES_PER_KILOBIT = 125.0
LEAST_OF_MEAN = 0.1  # a link is never slower than this share of its mean
COLUMNS = ("client", "macs_per_second", "lan", "wan_down", "wan_up")
PLACE = "place"


@dataclass(frozen=True)
class Device:
    """The device of one client. Links are in bytes per second."""

    macs_per_second: float = SPEED
    lan: float = LAN
    wan_down: float = WAN
    wan_up: float = WAN
    place: str = ""  # devices of one place are on one LAN


def devices_of(table: str, clients: int, seed: int) -> list[Device]:
    """The device of every client; `table` is `equal`, `phones` or the path of a CSV file."""
    if table == EQUAL:
        return [Device()] * clients
    if table == PHONES:
        return [drawn_phone(client, seed) for client in range(clients)]
    if not is_file(table):
        raise unknown("--devices, unless it is a .csv file,", table, (EQUAL, PHONES))
    devices = read_devices(Path(table))
    if len(devices) != clients:
        raise FedloomError(
            f"{table} must have a row for each of the {clients} clients",
            f"it has {len(devices)}",
            "correct it",
        )
    return devices


def is_file(table: str) -> bool:
    return table.endswith(".csv") or "/" in table


# Phones


class Link(NamedTuple):
    """Mean and standard deviation of one phone's link, in kilobits per second."""

    down: float
    down_std: float
    up: float
    up_std: float


class Phones(NamedTuple):
    """Measurements of real phones."""

    scores: tuple[int, ...]
    mean_score: float
    links: tuple[Link, ...]


@lru_cache(maxsize=1)
def read_phones() -> Phones:
    raw = reading.read_json(Path(__file__).with_name("phones.json"))
    scores = tuple(raw["scores"])
    links = tuple(Link(**link) for link in raw["links"])
    return Phones(scores, sum(scores) / len(scores), links)


def drawn_phone(client: int, seed: int) -> Device:
    """The phone of a client, which does not depend on how many clients there are."""
    phones = read_phones()
    draws = rng(seed, "phone", client)
    score = phones.scores[int(draws.integers(len(phones.scores)))]
    link = phones.links[int(draws.integers(len(phones.links)))]
    return Device(
        macs_per_second=SPEED * score / phones.mean_score,
        wan_down=BYTES_PER_KILOBIT * cut_normal(link.down, link.down_std, float(draws.normal())),
        wan_up=BYTES_PER_KILOBIT * cut_normal(link.up, link.up_std, float(draws.normal())),
    )


def cut_normal(mean: float, std: float, draw: float) -> float:
    """A value of a normal distribution, but never less than a tenth of its mean.

    `draw` is a value of the standard normal distribution.
    """
    return max(LEAST_OF_MEAN * mean, mean + std * draw)


# Devices from a file


def read_devices(path: Path) -> list[Device]:
    """The devices in a file, by client from 0 on. Every client must have exactly one row."""
    rule = f"{path} must be a CSV file of devices, with the columns {', '.join(COLUMNS)}"
    advice = "correct it, or check --devices"
    try:
        text = reading.read_text(path)
        rows = list(csv.reader(io.StringIO(text, newline="")))
    except (reading.Unreadable, csv.Error) as error:
        raise FedloomError(rule, str(error), advice) from None
    if not rows or tuple(rows[0]) not in (COLUMNS, (*COLUMNS, PLACE)):
        problem = "it is empty"
        if rows:
            problem = f"it begins with {', '.join(rows[0])}"
        raise FedloomError(rule, problem, advice)
    by_client: dict[int, Device] = {}
    for number, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        where = f"line {number} of {path}"
        if len(row) != len(rows[0]):
            raise FedloomError(
                f"{where} must have {len(rows[0])} values", f"it has {len(row)}", "correct it"
            )
        client = client_in(row[0], where)
        if client in by_client:
            raise FedloomError(
                f"{path} must have one row for each client",
                f"client {client} has two",
                "correct it",
            )
        by_client[client] = device_in(row, where)
    for client in range(len(by_client)):
        if client not in by_client:
            raise FedloomError(
                f"{path} must have a row for every client, from 0 on",
                f"client {client} has none",
                "add it",
            )
    return [by_client[client] for client in range(len(by_client))]


def client_in(text: str, where: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        rule = f"{where} must begin with a client's number"
        raise FedloomError(rule, f"got {text!r}", "correct it")
    return int(text)


def device_in(row: Sequence[str], where: str) -> Device:
    cells = dict(zip((*COLUMNS, PLACE), row, strict=False))  # the place may be absent
    return Device(
        macs_per_second=amount_in(cells, "macs_per_second", where),
        lan=amount_in(cells, "lan", where),
        wan_down=amount_in(cells, "wan_down", where),
        wan_up=amount_in(cells, "wan_up", where),
        place=cells.get(PLACE, ""),
    )


def amount_in(cells: Mapping[str, str], column: str, where: str) -> float:
    text = cells[column]
    try:
        amount = float(text)
    except ValueError:
        amount = 0.0
    if not 0 < amount < inf:
        rule = f"{column} in {where} must be a number above 0"
        raise FedloomError(rule, f"got {text!r}", "correct it")
    return amount


# Tiers of devices


def tiers_by_speed(devices: Sequence[Device], shares: Sequence[float], seed: int) -> list[int]:
    """The tier of every client, counted from 1, which has the slowest devices.

    The shares give the sizes of the tiers. Between devices of equal speed the seed decides.
    """
    drawn = rng(seed, "equal devices").permutation(len(devices)).tolist()
    ascending = sorted(
        range(len(devices)),
        key=lambda client: (devices[client].macs_per_second, drawn[client]),
    )
    tiers = [0] * len(devices)
    begin = 0
    for number, size in enumerate(sizes_of_tiers(shares, len(devices)), start=1):
        for client in ascending[begin : begin + size]:
            tiers[client] = number
        begin += size
    return tiers
