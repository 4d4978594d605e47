"""`fedloom data get NAME`: downloads a data set, verifies it, and lays it out as readers expect.

Whatever stops it, each file is complete or absent, and the next call continues from there. A file
that was fetched by other means and put where `--dry-run` says is used like a downloaded one.
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
    read_record,
    record_of,
    sha256_of,
    write_record,
)
from fedloom.data.fetching.fetch import Patience, disk, fetch
from fedloom.data.fetching.places import home as home  # the default of --data-dir
from fedloom.data.fetching.screen import DownloadScreen, megabytes
from fedloom.data.fetching.unpack import unpack
from fedloom.data.packed import present, unpacked_name
from fedloom.errors import FedloomError


@dataclass(frozen=True)
class Outcome:
    """What `fedloom data get` did."""

    report: Report
    fetched: bool  # False: all files were there already

    def to_json(self) -> dict[str, Any]:
        status = "fetched" if self.fetched else "present"
        return {**self.report.to_json(), "status": status}

    def sentence(self) -> str:
        dataset = self.report.dataset
        folder = self.report.folder
        checksums = dataset.remotes[0].checksums
        sources = [f"{checksum.algorithm} of {checksum.source}" for checksum in checksums]
        published = " and ".join(sources)
        state = "is"
        if self.fetched and published:
            state = f"matches the {published} and is now"
        use = f"Use it with `{command_to_run(dataset, folder)}`."
        return f"{dataset.name} {state} in {folder}: {verdict(self.report)}. {use}"


def obtain(
    dataset: DataSet, directory: Path, screen: DownloadScreen, patience: Patience
) -> Outcome:
    """Downloads a data set into a folder below `directory`, unless it is complete there already."""
    folder = directory / dataset.folder
    with disk(directory):
        directory.mkdir(parents=True, exist_ok=True)
    with locked(directory):
        if folder.exists() and any(folder.iterdir()):
            report = inspect(dataset, folder, screen)
            if not report.bad:
                return Outcome(report, fetched=False)
            if report.damaged or dataset.archive is not None:
                rule = f"{folder} must be complete or absent"
                raise FedloomError(rule, first_fault(report), advice(report))
        check_room(dataset, directory)
        if dataset.archive is None:
            obtain_files(dataset, folder, screen, patience)
        else:
            obtain_archive(dataset, directory, screen, patience)
        report = inspect(dataset, folder, screen)
    if report.bad:
        rule = f"{folder} must be complete"
        raise FedloomError(rule, first_fault(report), "report this bug of fedloom")
    return Outcome(report, fetched=True)


def first_fault(report: Report) -> str:
    first = report.bad[0]
    return f"{first.file} is {first.state}: {first.text}"


# Files that are not in an archive


def obtain_files(
    dataset: DataSet, folder: Path, screen: DownloadScreen, patience: Patience
) -> None:
    """Downloads each file, unless its content is there and was checked, however it is packed."""
    with disk(folder):
        folder.mkdir(exist_ok=True)
    here = {content.name for content in dataset.contents if present(folder, content.name)}
    for remote in dataset.remotes:
        target = folder / remote.name
        if unpacked_name(remote.name) in here:
            continue
        if target.exists():
            refuse_foreign(remote, target)
        else:
            fetch_into(folder, remote, screen, patience)
        record(remote, target, screen)


def record(remote: Remote, file: Path, screen: DownloadScreen) -> None:
    """Records the sha256 of a downloaded file, or compares it with that of the first download."""
    recorded = read_record(file.parent)
    digest = sha256_of(file)
    if recorded.get(remote.name, digest) != digest:
        rule = f"{file} must have the sha256 {recorded[remote.name]}, as at the first download"
        problem = f"the file that its server now sends has {digest}"
        record_file = record_of(file.parent)
        advice = f"remove {record_file} if the change is right, and {file} if it is not"
        raise FedloomError(rule, problem, advice)
    tell_recorded(remote, screen, f"its sha256 {digest} is")
    with disk(record_of(file.parent)):
        write_record(file.parent, {**recorded, remote.name: digest})


def fetch_into(folder: Path, remote: Remote, screen: DownloadScreen, patience: Patience) -> None:
    """Downloads a file. A folder that stays empty is removed: it would look like data."""
    try:
        fetch(remote, folder / remote.name, screen, patience)
    finally:
        if not any(folder.iterdir()):
            folder.rmdir()


# An archive


def obtain_archive(
    dataset: DataSet, directory: Path, screen: DownloadScreen, patience: Patience
) -> None:
    """Downloads an archive, unpacks it, and moves its folder into place.

    The record is written before that: if the folder exists, so does its record.
    """
    remote = dataset.remotes[0]
    expected = dataset.archive
    assert expected is not None
    folder = directory / dataset.folder
    archive = directory / remote.name
    into = unpacking(dataset, directory)
    brought_by_hand = archive.exists()
    if not brought_by_hand:
        fetch(remote, archive, screen, patience)
    refuse_foreign(remote, archive)
    tell_recorded(remote, screen, "the sha256 of each of its files is")
    try:
        with disk(into):
            shutil.rmtree(into, ignore_errors=True)  # left by a call that was killed
            digests = unpack(archive, into, expected, screen)
            refuse_changed(read_record(folder), digests, folder)
            inner = into / expected.inner
            if not inner.is_dir():
                rule = f"{archive} must hold the folder {expected.inner}"
                raise FedloomError(rule, "it does not", "remove it and fetch it again")
            write_record(folder, digests)
            os.sync()
            if folder.exists():
                folder.rmdir()  # `obtain` saw that it is empty
            os.rename(inner, folder)
    finally:
        shutil.rmtree(into, ignore_errors=True)
    if not brought_by_hand:
        archive.unlink()


def refuse_changed(before: dict[str, str], now: dict[str, str], folder: Path) -> None:
    for name, digest in before.items():
        if now.get(name) != digest:
            rule = f"{folder / name} must be what it was at the first download"
            advice = f"remove {record_of(folder)} if the change is right"
            raise FedloomError(rule, "it has changed or gone", advice)


# Files and archives


def refuse_foreign(remote: Remote, path: Path) -> None:
    """Refuses a file that does not have the published checksums."""
    mismatch = broken(path, remote.checksums)
    if mismatch is not None:
        rule = f"{path} must have the {mismatch.published}"
        raise FedloomError(rule, f"it has {mismatch.digest}", "remove it and fetch it again")


def tell_recorded(remote: Remote, screen: DownloadScreen, subject: str) -> None:
    if not remote.checksums:
        recorded = f"{subject} recorded as the one to compare with from now on"
        screen.say(f"{remote.name}: no checksum is published; {recorded}")


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Locks a folder: two calls that write the same file would damage it.

    The lock ends with its process.
    """
    handle = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            rule = f"`fedloom data get` must work alone in {directory}"
            advice = "wait for it, or choose another --data-dir"
            raise FedloomError(rule, "another one is working there", advice) from error
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(handle)


def check_room(dataset: DataSet, directory: Path) -> None:
    """Refuses to start if the disk has too little room for the data set."""
    present_bytes = 0
    for remote in dataset.remotes:
        for file in download_folder(dataset, directory).glob(f"{remote.name}*"):
            present_bytes += file.stat().st_size
    needed = max(dataset.size - present_bytes, 0)
    if dataset.archive is not None:
        needed += dataset.archive.bytes
    free = shutil.disk_usage(directory).free
    if free < needed:
        rule = f"{directory} must have room for {megabytes(needed)}"
        problem = f"{megabytes(free)} are free"
        raise FedloomError(rule, problem, "make room or choose another --data-dir")


def download_folder(dataset: DataSet, directory: Path) -> Path:
    """Returns the folder to download to: an archive lies beside the folder that it becomes."""
    if dataset.archive is not None:
        return directory
    return directory / dataset.folder


# Texts for the user


@dataclass(frozen=True)
class ManualDownload:
    """Which files to download by hand from where, and where to put them."""

    dataset: DataSet
    directory: Path

    def target(self, remote: Remote) -> Path:
        return download_folder(self.dataset, self.directory) / remote.name

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.dataset.name,
            "about": self.dataset.about,
            "home": self.dataset.home,
            "licence": self.dataset.licence,
            "files": [self._file_json(remote) for remote in self.dataset.remotes],
            "then": command_to_get(self.dataset, self.directory),
        }

    def _file_json(self, remote: Remote) -> dict[str, Any]:
        return {
            "urls": list(remote.urls),
            "put": str(self.target(remote)),
            "bytes": remote.size,
            "checksums": [vars(checksum) for checksum in remote.checksums],
        }

    def in_words(self) -> str:
        dataset = self.dataset
        origin = f"Home: {dataset.home}. Licence: {dataset.licence}."
        lines = [f"{dataset.name}: {dataset.about}. {origin}", "By hand:"]
        for remote in dataset.remotes:
            lines.append(f"  fetch  {' or '.join(remote.urls)}")
            lines.append(f"  to     {self.target(remote)}  ({megabytes(remote.size)})")
            for checksum in remote.checksums:
                digest = f"{checksum.algorithm} {checksum.digest}"
                lines.append(f"         {digest}, from {checksum.source}")
        lines.append(f"  then   {command_to_get(dataset, self.directory)}")
        return "\n".join(lines)


def command_to_get(dataset: DataSet, directory: Path) -> str:
    return f"fedloom data get {dataset.name}{data_dir_option(directory)}"


def command_to_run(dataset: DataSet, folder: Path) -> str:
    return f"fedloom run fedavg --data {dataset.name}{data_dir_option(folder.parent)}"


def data_dir_option(directory: Path) -> str:
    """Returns the option --data-dir, unless the folder is its default."""
    if directory == home().absolute():
        return ""
    return f" --data-dir {directory}"


def verdict(report: Report) -> str:
    states = {finding.state for finding in report.findings}
    sentences = {
        "ok": "as published",
        "recorded": "as recorded",
        "unverified": "not verified, because no checksum is known",
    }
    texts = [text for state, text in sentences.items() if state in states]
    return f"its files are {' and '.join(texts)}"
