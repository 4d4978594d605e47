"""`--engine flower-sim`: the same clients in Ray's processes, by Flower's simulation.

Flower runs the server's code in a thread of its own. Here that thread only passes on the grid and
waits, so that the loop runs in the main thread, as with every other engine. Ray starts on this
machine, or joins the cluster that RAY_ADDRESS names. In a cluster the run's folder must be on a
disk that all machines share.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from queue import Empty, Queue
from typing import Any

import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from fedloom.allocator import settle
from fedloom.errors import RunStopped
from fedloom.federation.client.site import Site
from fedloom.federation.engines.flower.answers import bytes_in, replied
from fedloom.federation.engines.flower.engine import FlowerEngine
from fedloom.federation.engines.worker import Resolve, SiteSpec

START = 120.0  # seconds that Ray may take to start


@cache
def site_of(spec: SiteSpec, resolve: Resolve) -> Site:
    """The site, which is opened once per process."""
    return spec.site(resolve)


def client_app(spec: SiteSpec, resolve: Resolve) -> ClientApp:
    app = ClientApp()

    def handle(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        settle()
        return answer(message, site_of(spec, resolve))

    app.query()(handle)
    return app


def answer(message: Message, site: Site) -> Message:
    """The answer of a simulation's ClientApp to a message."""
    content = message.content
    head = content.config_records["order"]["head"]
    chunks, envelope = site.handle(head, bytes_in(content, "body"))
    return replied(message, chunks, envelope)


@contextmanager
def simulation(
    spec: SiteSpec,
    resolve: Resolve,
    population: int,
    workers: int,
) -> Iterator[FlowerEngine]:
    """An engine whose clients are virtual nodes of Flower."""
    offered: Queue[Grid | BaseException] = Queue()
    over = threading.Event()
    server = ServerApp()

    def main(grid: Grid, context: Context) -> None:
        offered.put(grid)
        over.wait()

    server.main()(main)

    def run() -> None:
        try:
            run_simulation(
                server,
                client_app(spec, resolve),
                population,
                backend_config=backend(workers),
            )
        except BaseException as error:
            offered.put(error)

    thread = threading.Thread(target=run, name="flower-simulation", daemon=True)
    with quiet():
        thread.start()
        try:
            grid = started(offered)
            in_turns = -(-population // max(1, workers))
            yield FlowerEngine(
                grid,
                dict(enumerate(nodes_of(grid, population))),
                in_turns,
                poll=0.02,
            )
        finally:
            over.set()
            thread.join(timeout=START)


def backend(workers: int) -> dict[str, dict[str, Any]]:
    """One core per client, and as many at a time as asked for. On a cluster Ray decides."""
    start: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if "RAY_ADDRESS" not in os.environ:
        start["num_cpus"] = max(1, workers)
    return {"init_args": start, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}


def started(offered: Queue[Grid | BaseException]) -> Grid:
    try:
        grid = offered.get(timeout=START)
    except Empty:
        grid = TimeoutError(f"nothing happened for {START:g} s")
    if isinstance(grid, BaseException):
        raise RunStopped(
            "Flower's simulation must start",
            f"it did not ({type(grid).__name__}: {grid})",
            "see the messages above, then resume the run",
        )
    return grid


def nodes_of(grid: Grid, population: int) -> list[int]:
    """The ids of the grid's virtual nodes, as soon as all of them have started.

    Any node can be any client, because they share one disk.
    """
    for _ in range(round(START / 0.1)):
        nodes = sorted(grid.get_node_ids())
        if len(nodes) >= population:
            return nodes
        time.sleep(0.1)
    raise RunStopped(
        f"Flower must start {population} virtual nodes",
        f"there are {len(nodes)}",
        "resume the run",
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Flower's progress messages. Errors are in our own log."""
    logger = logging.getLogger("flwr")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
