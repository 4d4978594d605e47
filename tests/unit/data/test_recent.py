import torch

from fedloom.data.recent import RecentClients
from fedloom.data.samples import ClientData, Samples


def part(count):
    return Samples(
        torch.zeros(count, 1), torch.zeros(count, dtype=torch.int64)
    )  # 12 bytes a sample


class Disk:
    """Notes what is read of it."""

    def __init__(self):
        self.reads = []

    def client(self, number):
        def reading(name, count):
            def read():
                self.reads.append((number, name))
                return part(count)

            return read

        return ClientData(reading("train", 4), reading("validation", 0), reading("test", 2))


def test_a_part_is_read_when_it_is_asked_for_and_once():
    disk = Disk()
    data = disk.client(3)
    assert disk.reads == [] and data.size == 0
    assert len(data.train) == 4 and data.train is data.train
    assert disk.reads == [(3, "train")] and data.size == 48
    assert len(data.test) == 2 and disk.reads == [(3, "train"), (3, "test")]


def test_clients_that_worked_last_are_not_read_again():
    disk = Disk()
    clients = RecentClients(disk.client, most_bytes=100)
    for number in (0, 1, 0):
        assert len(clients(number).train) == 4
    assert disk.reads == [(0, "train"), (1, "train")]


def test_the_longest_unused_goes_first_and_the_one_at_work_never():
    disk = Disk()
    clients = RecentClients(disk.client, most_bytes=100)
    for number in (0, 1, 0, 2):
        assert len(clients(number).train) == 4
    assert list(clients.kept) == [1, 0, 2]  # 144 bytes, of which nobody was asked since
    clients(3)
    assert list(clients.kept) == [0, 2, 3]
    small = RecentClients(disk.client, most_bytes=1)
    assert len(small(0).train) == 4 and len(small(1).train) == 4
    assert list(small.kept) == [1]
