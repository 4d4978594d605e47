"""The allocator's thresholds, seen from a process of its own."""

import subprocess
import sys

import pytest

from fedloom import allocator

PROGRAM = """
import ctypes, resource, sys
from fedloom.allocator import settle
if sys.argv[1] == "settled":
    assert settle()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
size = 1 << 20
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    blocks = [libc.malloc(size) for _ in range(8)]
    for block in blocks:
        ctypes.memset(block, 1, size)
    for block in blocks:
        libc.free(block)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(how):
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True
    )
    return int(run.stdout)


def test_freed_memory_stays_with_a_settled_process():
    """Eight blocks of a megabyte, again and again: the kernel gives their pages only once."""
    if not allocator.settle():
        pytest.skip("this is no glibc: there is nothing to settle")
    assert page_faults("settled") < page_faults("as it is") / 4


def test_another_allocator_is_left_alone(monkeypatch):
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: object())
    assert allocator.settle() is False


FREEING = """
import ctypes
from fedloom.allocator import MOST_FREED, give_back, settle

def resident():
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * 4096

assert settle()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
size = 1 << 22
blocks = [libc.malloc(size) for _ in range(2 * MOST_FREED // size)]
for block in blocks:
    ctypes.memset(block, 1, size)
last = libc.malloc(size)  # so that the end of the heap is in use, and nothing is trimmed by itself
ctypes.memset(last, 1, size)
for block in blocks:
    libc.free(block)
before = resident()
assert give_back()
assert before - resident() > MOST_FREED, (before, resident())
"""


def test_much_freed_memory_goes_back_between_two_orders():
    if not allocator.settle():
        pytest.skip("this is no glibc: there is nothing to settle")
    subprocess.run([sys.executable, "-c", FREEING], check=True)


def test_glibc_is_not_asked_while_the_process_is_small(monkeypatch):
    """Its answer takes milliseconds where there are many small blocks."""
    asked = []
    monkeypatch.setattr(allocator, "find_glibc", lambda: asked.append(True))
    monkeypatch.setattr(allocator, "MEMORY", allocator.MemoryState(resident_at_start=1000))
    monkeypatch.setattr(allocator, "resident", lambda: 1000 + allocator.MOST_FREED)
    assert not allocator.give_back() and asked == []
    monkeypatch.setattr(allocator, "resident", lambda: 1001 + allocator.MOST_FREED)
    assert not allocator.give_back() and asked == [True]
    monkeypatch.setattr(allocator, "resident", lambda: None)
    assert not allocator.give_back() and asked == [True, True]


def test_glibc_is_asked_no_more_often_than_it_is_worth(monkeypatch):
    """It took a second to answer: it is not asked again for `PATIENCE` seconds."""
    now = [100.0]

    class SlowLibrary:
        asked = 0

        def mallinfo2(self):
            self.asked += 1
            now[0] += 1.0
            return allocator.Usage()

    library = SlowLibrary()
    monkeypatch.setattr(allocator, "find_glibc", lambda: library)
    monkeypatch.setattr(allocator, "resident", lambda: None)
    monkeypatch.setattr(allocator, "MEMORY", allocator.MemoryState())
    monkeypatch.setattr(allocator.time, "monotonic", lambda: now[0])
    assert not allocator.give_back() and library.asked == 1
    now[0] = 100.9 + allocator.PAUSE
    assert not allocator.give_back() and library.asked == 1
    now[0] = 101.1 + allocator.PAUSE
    assert not allocator.give_back() and library.asked == 2


def test_nobody_looks_at_a_process_that_never_was_large(monkeypatch):
    looked = []
    monkeypatch.setattr(allocator, "find_glibc", lambda: None)
    monkeypatch.setattr(allocator, "MEMORY", allocator.MemoryState(resident_at_start=1000))
    monkeypatch.setattr(allocator, "resident", lambda: looked.append(True))
    assert not allocator.give_back(1000 + allocator.MOST_FREED) and looked == []
    assert not allocator.give_back(1001 + allocator.MOST_FREED) and looked == [True]
