"""`fedloom data get NAME`: a data set from its home, verified, in the layout that the readers expect.

Whatever stops it, each file is whole or absent, and the next call goes on from there. A file that was fetched by
other means and put where `--dry-run` says is taken like one that was downloaded.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedloom.data.fetching.catalogue import DataSet, Remote
from fedloom.data.fetching.check import Report, advice, inspect, unpacking
from fedloom.data.fetching.digests import (
    broken,
    present,
    read_record,
    record_of,
    sha256_of,
    unpacked_name,
    write_record,
)
from fedloom.data.fetching.fetch import Patience, disk, fetch
from fedloom.data.fetching.places import home as home  # the one place that says what --data-dir is by default
from fedloom.data.fetching.shown import Silent, megabytes
from fedloom.data.fetching.unpack import unpack
from fedloom.errors import FedloomError


@dataclass(frozen=True)
class Outcome:
    report: Report
    fetched: bool  # False: all was there already

    def to_json(self) -> dict[str, Any]:
        return {**self.report.to_json(), "status": "fetched" if self.fetched else "present"}

    def sentence(self) -> str:
        dataset, folder = self.report.dataset, self.report.folder
        known = " and ".join(f"{one.algorithm} of {one.source}" for one in dataset.remotes[0].checksums)
        first = f"came with the {known} and is now" if self.fetched and known else "is"
        return f"{dataset.name} {first} in {folder}: {verdict(self.report)}. Use it with `{usage(dataset, folder)}`."


def obtain(dataset: DataSet, directory: Path, screen: Silent, patience: Patience) -> Outcome:
    folder = directory / dataset.folder
    with disk(directory):
        directory.mkdir(parents=True, exist_ok=True)
    with alone(directory):
        if folder.exists() and any(folder.iterdir()):
            report = inspect(dataset, folder, screen)
            if not report.bad:
                return Outcome(report, fetched=False)
            if report.damaged or dataset.archive is not None:
                one = report.bad[0]
                must = f"{folder} must be whole or absent"
                raise FedloomError(must, f"{one.file} is {one.state}: {one.text}", advice(report))
        enough_room(dataset, directory)
        if dataset.archive is None:
            obtain_files(dataset, folder, screen, patience)
        else:
            obtain_archive(dataset, directory, screen, patience)
        report = inspect(dataset, folder, screen)
    if report.bad:
        one = report.bad[0]
        raise FedloomError(
            f"{folder} must be whole", f"{one.file} is {one.state}: {one.text}", "report this fault of fedloom"
        )
    return Outcome(report, fetched=True)


def obtain_files(dataset: DataSet, folder: Path, screen: Silent, patience: Patience) -> None:
    """A file whose content was found right before is taken however it is packed."""
    with disk(folder):
        folder.mkdir(exist_ok=True)
    right = {content.name for content in dataset.contents if present(folder, content.name)}
    for remote in dataset.remotes:
        target = folder / remote.name
        if unpacked_name(remote.name) in right:
            continue
        if target.exists():
            refuse_foreign(remote, target)
        else:
            fetch_into(folder, remote, screen, patience)
        record(remote, target, screen)


def record(remote: Remote, file: Path, screen: Silent) -> None:
    known, digest = read_record(file.parent), sha256_of(file)
    if known.get(remote.name, digest) != digest:
        must = f"{file} must have the sha256 {known[remote.name]}, as at the first download"
        todo = f"remove {record_of(file.parent)} if the change is right, and {file} if it is not"
        raise FedloomError(must, f"what its server now gives has {digest}", todo)
    tell_recorded(remote, screen, f"its sha256 {digest} is")
    with disk(record_of(file.parent)):
        write_record(file.parent, {**known, remote.name: digest})


def fetch_into(folder: Path, remote: Remote, screen: Silent, patience: Patience) -> None:
    """A folder in which nothing came is not left behind: it would look like data."""
    try:
        fetch(remote, folder / remote.name, screen, patience)
    finally:
        if not any(folder.iterdir()):
            folder.rmdir()


def obtain_archive(dataset: DataSet, directory: Path, screen: Silent, patience: Patience) -> None:
    """The record comes first: a folder that is there is one that is recorded."""
    remote, expected, folder = dataset.remotes[0], dataset.archive, directory / dataset.folder
    assert expected is not None
    archive, into = directory / remote.name, unpacking(dataset, directory)
    brought = archive.exists()
    if not brought:
        fetch(remote, archive, screen, patience)
    refuse_foreign(remote, archive)
    tell_recorded(remote, screen, "the sha256 of each of its files is")
    try:
        with disk(into):
            shutil.rmtree(into, ignore_errors=True)  # of a call that was killed
            digests = unpack(archive, into, expected, screen)
            changed(read_record(folder), digests, folder)
            inner = into / expected.inner
            if not inner.is_dir():
                must, found = f"{archive} must hold the folder {expected.inner}", "it does not"
                raise FedloomError(must, found, "remove it and fetch it again")
            write_record(folder, digests)
            os.sync()
            if folder.exists():
                folder.rmdir()  # empty, as was seen before
            os.rename(inner, folder)
    finally:
        shutil.rmtree(into, ignore_errors=True)
    if not brought:
        archive.unlink()


def refuse_foreign(remote: Remote, path: Path) -> None:
    wrong = broken(path, remote.checksums)
    if wrong is not None:
        checksum, found = wrong
        must = f"{path} must have the {checksum.algorithm} {checksum.digest} ({checksum.source})"
        raise FedloomError(must, f"it has {found}", "remove it and fetch it again")


def tell_recorded(remote: Remote, screen: Silent, what: str) -> None:
    if not remote.checksums:
        screen.say(f"{remote.name}: no checksum is published; {what} recorded as the one to compare with from now on")


def changed(before: dict[str, str], now: dict[str, str], folder: Path) -> None:
    for name, digest in before.items():
        if now.get(name) != digest:
            must = f"{folder / name} must be what it was at the first download"
            raise FedloomError(must, "it has changed or gone", f"remove {record_of(folder)} if the change is right")


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Two calls that write the same part would spoil it. The lock goes with its process."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            must, found = f"one `fedloom data get` at a time must work in {directory}", "another one does"
            raise FedloomError(must, found, "wait for it, or choose another --data-dir") from error
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(handle)


def enough_room(dataset: DataSet, directory: Path) -> None:
    there = (directory if dataset.archive is not None else directory / dataset.folder).glob
    have = sum(file.stat().st_size for remote in dataset.remotes for file in there(f"{remote.name}*"))
    needed = max(dataset.size - have, 0) + (dataset.archive.bytes if dataset.archive is not None else 0)
    free = shutil.disk_usage(directory).free
    if free < needed:
        must, found = f"{directory} must have room for {megabytes(needed)}", f"{megabytes(free)} are free"
        raise FedloomError(must, found, "make room or choose another --data-dir")


def by_hand(dataset: DataSet, directory: Path) -> dict[str, Any]:
    """Which files to fetch from where, and where to put them."""
    where = directory if dataset.archive is not None else directory / dataset.folder
    return {
        "name": dataset.name,
        "about": dataset.about,
        "home": dataset.home,
        "licence": dataset.licence,
        "files": [
            {
                "urls": list(remote.urls),
                "put": str(where / remote.name),
                "bytes": remote.size,
                "checksums": [vars(one) for one in remote.checksums],
            }
            for remote in dataset.remotes
        ],
        "then": again(dataset, directory),
    }


def in_words(plan: dict[str, Any]) -> str:
    lines = [f"{plan['name']}: {plan['about']}. Home: {plan['home']}. Licence: {plan['licence']}.", "By hand:"]
    for file in plan["files"]:
        lines += [f"  fetch  {' or '.join(file['urls'])}", f"  to     {file['put']}  ({megabytes(file['bytes'])})"]
        lines += [f"         {one['algorithm']} {one['digest']}, from {one['source']}" for one in file["checksums"]]
    return "\n".join([*lines, f"  then   {plan['then']}"])


def again(dataset: DataSet, directory: Path) -> str:
    return f"fedloom data get {dataset.name}{place(directory)}"


def usage(dataset: DataSet, folder: Path) -> str:
    return f"fedloom run fedavg --data {dataset.name}{place(folder.parent)}"


def place(directory: Path) -> str:
    return "" if directory == home().absolute() else f" --data-dir {directory}"


def verdict(report: Report) -> str:
    states = [one.state for one in report.findings]
    words = {"ok": "as published", "recorded": "as recorded", "unverified": "not verified, as no checksum is known"}
    return f"its files are {' and '.join(text for state, text in words.items() if state in states)}"
