"""Worker processes take seconds to start: the tests share three of them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tiny

from fedloom.federation.engines.worker_pool import Pool


@pytest.fixture(scope="session")
def three() -> Iterator[Pool]:
    pool = Pool(3)
    pool.wait()
    yield pool
    pool.close()


@pytest.fixture
def pool_of(three: Pool) -> Iterator[Callable[[int], Pool]]:
    """A pool of the first n workers; those it had to replace stay replaced."""
    lent: list[Pool] = []

    def lend(size: int) -> Pool:
        lent.append(Pool(size, workers=three.workers[:size]))
        return lent[-1]

    yield lend
    for pool in lent:
        three.workers[: pool.size] = pool.workers


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return tiny.write_images(tmp_path / "images.npz")
