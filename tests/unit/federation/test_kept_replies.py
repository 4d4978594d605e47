"""Replies that stay in memory until the mean is taken, and those that are read again."""

import pytest

from fedloom.federation.protocol import parcels
from fedloom.federation.server import exchange
from fedloom.federation.server.spool import Spool
from fedloom.testing.toy import Toy, differences


@pytest.fixture
def read_again(monkeypatch):
    """The clients whose replies to work the server reads a second time."""
    places = []
    content = Spool.content

    def noted(self, receipt):
        if receipt.hop >= 0:  # else it is no work
            places.append(receipt.client)
        return content(self, receipt)

    monkeypatch.setattr(Spool, "content", noted)
    return places


def test_a_kept_reply_is_as_good_as_one_read_again(monkeypatch, tmp_path, read_again):
    """Every reply is a file here, three per round. There is room for none, for two, or for all."""
    monkeypatch.setattr(parcels, "MOST_HELD", 0)
    toy = Toy.of("fedavg", rounds=2)
    runs = []
    counts = []
    size = 0
    for share in (0.0, 2.5, 4.0):
        monkeypatch.setattr(exchange, "MOST_KEPT", int(share * size))
        read_again.clear()
        runs.append(toy.run(tmp_path / str(share)))
        counts.append(len(read_again))
        size = largest_reply(runs[0].rows)
    assert counts == [6, 2, 0]
    assert differences(runs[0], runs[1]) == []
    assert differences(runs[0], runs[2]) == []


def largest_reply(rows):
    """The bytes of the largest reply of a run."""
    sizes = []
    for row in rows:
        sizes += [line.up for line in row.ledger]
    return max(sizes)
