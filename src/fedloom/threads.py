"""The number of threads that torch computes with."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread, so that bits are equal everywhere.

    The last bits of a convolution depend on the number of threads. And our steps are too small to
    be worth sharing between threads where cores are busy.
    """
    import torch  # late: code that only reads records imports this module too

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
