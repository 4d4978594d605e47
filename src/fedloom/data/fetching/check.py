"""`fedloom data check DIR|NAME`: are the files of a known data set complete and unchanged?

Files with a published checksum are compared with it, packed or not. All others are compared with
the record that `fedloom data get` wrote when they were downloaded. If there is neither, the report
says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedloom.data.fetching import catalogue
from fedloom.data.fetching.catalogue import Content, DataSet, Remote
from fedloom.data.fetching.digests import (
    UNREADABLE,
    broken,
    measure,
    opened,
    read_record,
    record_of,
    sha256_of,
)
from fedloom.data.fetching.places import home
from fedloom.data.fetching.screen import DownloadScreen
from fedloom.data.packed import present, unpacked_name
from fedloom.errors import FedloomError

MOST_LINES = 20  # of missing or damaged files, in a table


@dataclass(frozen=True)
class Finding:
    """The state of one file, or of several that share it."""

    file: str
    state: str  # ok, recorded, unverified, missing, damaged
    text: str  # the reason

    @property
    def good(self) -> bool:
        return self.state not in ("missing", "damaged")


@dataclass(frozen=True)
class Report:
    """The state of a data set in a folder."""

    dataset: DataSet
    folder: Path
    findings: tuple[Finding, ...]
    leftovers: tuple[Path, ...]  # files of unfinished downloads, and archives; harmless

    @property
    def bad(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if not finding.good)

    @property
    def damaged(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.state == "damaged")

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.dataset.name,
            "folder": str(self.folder),
            "good": not self.bad,
            "files": [vars(finding) for finding in self.findings],
            "leftovers": [str(path) for path in self.leftovers],
        }


def inspect(dataset: DataSet, folder: Path, screen: DownloadScreen) -> Report:
    """Checks all files of a data set in a folder."""
    screen.say(f"checking {folder}")
    record = read_record(folder)
    findings = [content_finding(content, folder) for content in dataset.contents]
    findings += recorded_findings(dataset, folder, record)
    findings += bare_findings(dataset, folder, record)
    findings += count_findings(dataset, folder)
    if not dataset.contents and not record and all(finding.good for finding in findings):
        published = "no checksum of the unpacked files is published"
        text = f"{published}, and none was recorded here; the number of files is right"
        findings.append(Finding("all files", "unverified", text))
    return Report(dataset, folder, tuple(findings), tuple(leftovers(dataset, folder)))


def content_finding(content: Content, folder: Path) -> Finding:
    """Compares a file with its published checksum."""
    path = present(folder, content.name)
    if path is None:
        return Finding(content.name, "missing", "not there, neither raw nor as .gz or .xz")
    published = content.checksum
    try:
        with opened(path) as stream:
            measured = measure(stream, [published.algorithm], content.size)
    except UNREADABLE as error:
        return Finding(path.name, "damaged", f"cannot be read to its end: {error}")
    if measured.size > content.size:  # it was not read further, so its size is not known
        text = f"has more than {content.size} bytes, must have {content.size}"
        return Finding(path.name, "damaged", text)
    if measured.size < content.size:
        text = f"has {measured.size} bytes, must have {content.size}"
        return Finding(path.name, "damaged", text)
    if measured.digests[published.algorithm] != published.digest:
        text = f"its {published.algorithm} is not {published.digest} ({published.source})"
        return Finding(path.name, "damaged", text)
    return Finding(path.name, "ok", f"{published.algorithm} as in {published.source}")


def recorded_findings(dataset: DataSet, folder: Path, record: dict[str, str]) -> Iterator[Finding]:
    """Compares files without a published checksum with the record.

    Each missing or changed file is one finding; all unchanged ones together are one more.
    """
    covered = {content.name for content in dataset.contents}
    unchanged = 0
    for name, digest in record.items():
        file = folder / name
        if unpacked_name(name) in covered:
            continue
        if not file.is_file():
            yield Finding(name, "missing", f"not there, though {record_of(folder).name} names it")
        elif sha256_of(file) != digest:
            yield Finding(name, "damaged", "has changed since it was recorded")
        else:
            unchanged += 1
    if unchanged:
        files = "file" if unchanged == 1 else "files"
        if covered:
            files = f"more {files}"
        text = f"sha256 as recorded at the first download, in {record_of(folder).name}"
        yield Finding(f"{unchanged} {files}", "recorded", text)


def bare_findings(dataset: DataSet, folder: Path, record: dict[str, str]) -> Iterator[Finding]:
    """Checks files outside an archive that neither a `Content` nor the record covers."""
    if dataset.archive is not None:
        return
    covered = set(record)
    covered.update(content.name for content in dataset.contents)
    for remote in dataset.remotes:
        if remote.name not in covered and unpacked_name(remote.name) not in covered:
            yield bare_finding(remote, folder / remote.name)


def bare_finding(remote: Remote, file: Path) -> Finding:
    if not file.is_file():
        return Finding(remote.name, "missing", "not there")
    mismatch = broken(file, remote.checksums)
    if mismatch is not None:
        published = mismatch.published
        text = f"its {published.algorithm} is not {published.digest}"
        return Finding(remote.name, "damaged", text)
    if remote.checksums:
        first = remote.checksums[0]
        return Finding(remote.name, "ok", f"{first.algorithm} as in {first.source}")
    text = "no checksum is published, and none was recorded here"
    return Finding(remote.name, "unverified", text)


def count_findings(dataset: DataSet, folder: Path) -> Iterator[Finding]:
    """Yields a finding for each pattern that too few or too many files match."""
    for count in dataset.counts:
        files = sum(1 for _ in folder.glob(count.pattern))
        text = f"{files} files, must be {count.number}"
        if files < count.number:
            yield Finding(count.pattern, "missing", text)
        elif files > count.number:
            yield Finding(count.pattern, "damaged", text)


def leftovers(dataset: DataSet, folder: Path) -> Iterator[Path]:
    """Yields files of unfinished downloads, archives, and folders of unfinished unpacking."""
    place = folder
    endings = [".part", ".part.json"]
    if dataset.archive is not None:  # it lies beside the folder, and is not part of the data set
        place = folder.parent
        endings = ["", *endings]
    for remote in dataset.remotes:
        for ending in endings:
            path = place / f"{remote.name}{ending}"
            if path.exists():
                yield path
    unfinished = unpacking(dataset, folder.parent)
    if unfinished.exists():
        yield unfinished


def unpacking(dataset: DataSet, directory: Path) -> Path:
    """Returns the folder that an archive is unpacked to, before it is renamed into place."""
    return directory / f".{dataset.folder}.unpacking"


def located(dataset: DataSet, directory: Path) -> Path | None:
    """Returns the folder with files of this data set: `directory`, or one below it."""
    for folder in (directory / dataset.folder, directory):
        if any(present(folder, content.name) for content in dataset.contents):
            return folder
        if any(matches(folder, count.pattern) for count in dataset.counts):
            return folder
    return None


def matches(folder: Path, pattern: str) -> bool:
    return any(True for _ in folder.glob(pattern))


def examine(place: str, data_dir: str | None, screen: DownloadScreen) -> list[Report]:
    """Checks the data set of this name, or all known data sets in this folder."""
    path = Path(place).expanduser()
    if place in catalogue.CATALOGUE and (data_dir is not None or not path.is_dir()):
        directory = home()
        if data_dir is not None:
            directory = Path(data_dir).expanduser()
        dataset = catalogue.named(place)
        folder = located(dataset, directory) or directory / dataset.folder
        return [inspect(dataset, folder, screen)]
    names = ", ".join(catalogue.CATALOGUE)
    if not path.is_dir():
        rule = f"{place} must be a folder or a known data set"
        raise FedloomError(rule, "there is none", f"name a folder, or one of {names}")
    reports = []
    for dataset in catalogue.CATALOGUE.values():
        data_folder = located(dataset, path)
        if data_folder is not None:
            reports.append(inspect(dataset, data_folder, screen))
    if not reports:
        own_data = "your own data is checked when it is read, by --data"
        raise FedloomError(
            f"{place} must hold files of {names}",
            "none of them lies there",
            f"only those have checksums; {own_data}",
            code=1,
        )
    return likeliest(reports)


def likeliest(reports: list[Report]) -> list[Report]:
    """Returns one report per folder, the one with the fewest faults.

    MNIST and Fashion-MNIST have the same file names, so only the contents tell them apart.
    """
    best: dict[Path, Report] = {}
    for report in reports:
        other = best.get(report.folder)
        if other is None or len(report.bad) < len(other.bad):
            best[report.folder] = report
    return list(best.values())


def table(report: Report) -> None:
    """Prints a report."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    rows = Table(
        "file",
        "state",
        "why",
        box=SIMPLE_HEAD,
        padding=0,
        title_justify="left",
        title=heading(report),
    )
    good = [finding for finding in report.findings if finding.good]
    for finding in (*report.bad[:MOST_LINES], *good):
        rows.add_row(finding.file, finding.state, finding.text)
    console = Console(markup=False)
    console.print(rows)
    if len(report.bad) > MOST_LINES:
        console.print(f"… and {len(report.bad) - MOST_LINES} more that are missing or damaged")
    for path in report.leftovers:
        console.print(f"leftover, can be removed: {path}", highlight=False, soft_wrap=True)
    if report.bad:
        console.print(advice(report), highlight=False, soft_wrap=True)


def heading(report: Report) -> str:
    where = f"{report.dataset.name} in {report.folder}"
    if not report.bad:
        return f"{where}: good"
    return f"{where}: {len(report.bad)} missing or damaged"


def advice(report: Report) -> str:
    command = f"`fedloom data get {report.dataset.name} --data-dir {report.folder.parent}`"
    fetch = f"{command} fetches what is missing"
    if report.dataset.archive is not None and report.folder.exists():
        return f"remove the folder, then {fetch}"
    if report.damaged:
        return f"remove what is damaged, then {fetch}"
    return fetch
