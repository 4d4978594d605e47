"""A federation of real processes on this machine, and how to end all of them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

FEDLOOM = [sys.executable, "-m", "fedloom"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_sites(folder: Path, names: tuple[str, ...], samples: int = 40, side: int = 6) -> None:
    """Noise with a trace of its label, an .npz a site."""
    folder.mkdir()
    for number, name in enumerate(names):
        draw = np.random.default_rng(number)
        y = np.arange(samples + number) % 3
        x = np.clip(
            draw.normal(60 + 60 * y[:, None, None], 30, (len(y), side, side)), 0, 255
        ).astype(np.uint8)
        np.savez(folder / f"{name}.npz", x=x, y=y.astype(np.int64))


def allow_small_parts(kit: Path) -> None:
    """Let a site take part although its few samples make parts of fewer than 20."""
    policy = kit / "policy.toml"
    lines = [line for line in policy.read_text().splitlines() if not line.startswith("min_part")]
    policy.write_text("\n".join(["min_part = 2", *lines, ""]))


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.2)
    return condition()


@dataclass
class Deployment:
    folder: Path
    names: tuple[str, ...] = ("hospital-a", "hospital-b")
    env: dict[str, str] = field(default_factory=dict)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.folder / "federation"

    def fedloom(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*FEDLOOM, *words],
            cwd=self.folder,
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            timeout=1200,  # auto has ten rounds, and a machine may be busy
        )

    def launch(self, name: str, *words: str, **env: str) -> subprocess.Popen[bytes]:
        return self._launch(name, [*FEDLOOM, *words], env)

    def _launch(
        self, name: str, command: list[str], env: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        from fedloom.deploy.processes import (
            end_with_parent,
        )  # which needs Flower, unlike collecting the tests

        def prepared() -> None:
            """Ctrl-C works even if it is ignored here, and the process ends with the tests."""
            signal.signal(signal.SIGINT, signal.default_int_handler)
            end_with_parent()

        with open(self.log(name), "ab") as output:
            self.running[name] = subprocess.Popen(
                command, cwd=self.folder, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                start_new_session=True, env={**os.environ, **self.env, **env},
                preexec_fn=prepared,
            )  # fmt: skip
        return self.running[name]

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def said(self, name: str, text: str) -> bool:
        return self.log(name).exists() and text in self.log(name).read_text(errors="replace")

    def init(self) -> Deployment:
        write_sites(self.folder / "sites", self.names)
        sites = []
        for name in self.names:
            sites += ["--site", name]
        done = self.fedloom(
            "federation", "init", str(self.path), *sites, "--port", str(free_port())
        )
        assert done.returncode == 0, done.stderr
        for name in self.names:
            allow_small_parts(self.path / "kits" / name)
        return self

    def serve(self) -> None:
        self.log("server").unlink(missing_ok=True)
        self.launch("server", "federation", "server", str(self.path))
        assert wait_for(lambda: self.said("server", "fedloom: serving")), self.log(
            "server"
        ).read_text()

    def attend(
        self, name: str, data: str | None = None, kit: Path | None = None, *words: str, **env: str
    ) -> None:
        kit = kit or self.path / "kits" / name
        data = data or f"sites/{name}.npz"
        self.launch(
            name,
            "federation",
            "site",
            str(kit),
            "--data",
            data,
            "--port",
            str(free_port()),
            *words,
            **env,
        )

    def bypass(self, name: str, kit: Path, data: str, *, insecure: bool) -> None:
        """A site's process of Flower's, without what our command checks first."""
        start = (
            f"start_site(kit, DataConfig(name={data!r}), device='cpu', port={free_port()}, "
            f"insecure={insecure})"
        )
        script = f"""
from pathlib import Path
from fedloom.config.models import DataConfig
from fedloom.deploy.kits import Kit
from fedloom.deploy.processes import start_site, stop, wait
kit = Kit.open(Path({str(kit)!r}))
process = {start}
try:
    wait(process)
finally:
    stop(process)
"""
        self._launch(name, [sys.executable, "-c", script], {})

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.fedloom("run", *words, "--federation", str(self.path), "--json")

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """The process of ours, and the one of Flower's that it started in a session of its own."""
        process = self.running.pop(name)
        started = [*children(process.pid), process.pid]
        for pid in started:
            send(pid, number)
        process.wait(30)

    def leave(self, name: str) -> None:
        """End a process politely: a site signs off."""
        process = self.running.pop(name)
        send(process.pid, signal.SIGTERM)
        process.wait(60)

    def stop(self) -> None:
        for process in self.running.values():
            send(process.pid, signal.SIGTERM)
        for process in self.running.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                for pid in [*children(process.pid), process.pid]:
                    send(pid, signal.SIGKILL)
        self.running.clear()


def children(pid: int) -> list[int]:
    """All processes below one, the deepest first, whichever of its threads started them."""
    descendants: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        for thread in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in thread.read_text().split():
                descendants += [*children(int(child)), int(child)]
    return descendants


def send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
