"""`fedloom data check DIR|NAME`: are the files of a known data set there, whole and unchanged?

Contents are compared with checksums that are published, packed or not; all other files with the record that
`fedloom data get` wrote when they came. Where neither is known, that is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedloom.data.fetching import catalogue
from fedloom.data.fetching.catalogue import Content, DataSet
from fedloom.data.fetching.digests import (
    UNREADABLE,
    broken,
    measure,
    opened,
    present,
    read_record,
    record_of,
    sha256_of,
    unpacked_name,
)
from fedloom.data.fetching.places import home
from fedloom.data.fetching.shown import Silent
from fedloom.errors import FedloomError

MOST_LINES = 20  # of a kind, in a table


@dataclass(frozen=True)
class Finding:
    file: str
    state: str  # ok, recorded, unverified, missing, damaged
    text: str

    @property
    def good(self) -> bool:
        return self.state not in ("missing", "damaged")


@dataclass(frozen=True)
class Report:
    dataset: DataSet
    folder: Path
    findings: tuple[Finding, ...]
    leftovers: tuple[Path, ...]  # of downloads and archives; harmless

    @property
    def bad(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if not one.good)

    @property
    def damaged(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.state == "damaged")

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.dataset.name,
            "folder": str(self.folder),
            "good": not self.bad,
            "files": [vars(one) for one in self.findings],
            "leftovers": [str(path) for path in self.leftovers],
        }


def inspect(dataset: DataSet, folder: Path, shown: Silent) -> Report:
    shown.say(f"checking {folder}")
    record = read_record(folder)
    findings = [content_finding(one, folder) for one in dataset.contents]
    findings += list(recorded_findings(dataset, folder, record))
    findings += list(bare_findings(dataset, folder, record))
    findings += [one for count in dataset.counts if (one := count_finding(count.pattern, count.number, folder))]
    if not dataset.contents and not record and all(one.good for one in findings):
        text = "no checksum of the unpacked files is published, and none was recorded here; their number is right"
        findings.append(Finding("all files", "unverified", text))
    return Report(dataset, folder, tuple(findings), tuple(leftovers(dataset, folder)))


def content_finding(content: Content, folder: Path) -> Finding:
    path = present(folder, content.name)
    if path is None:
        return Finding(content.name, "missing", "not there, neither as it is nor as .gz or .xz")
    wanted = content.checksum
    try:
        with opened(path) as stream:
            size, digests = measure(stream, [wanted.algorithm], content.size)
    except UNREADABLE as error:
        return Finding(path.name, "damaged", f"cannot be read to its end: {error}")
    if size != content.size:
        more = "more than " * (size > content.size)
        return Finding(path.name, "damaged", f"has {more}{min(size, content.size)} bytes, must have {content.size}")
    if digests[wanted.algorithm] != wanted.digest:
        return Finding(path.name, "damaged", f"its {wanted.algorithm} is not {wanted.digest} ({wanted.source})")
    return Finding(path.name, "ok", f"{wanted.algorithm} as in {wanted.source}")


def recorded_findings(dataset: DataSet, folder: Path, record: dict[str, str]) -> Iterator[Finding]:
    """What is wrong with files that no published checksum covers, and how many are right."""
    covered = {content.name for content in dataset.contents}
    right = 0
    for name, digest in record.items():
        file = folder / name
        if unpacked_name(name) in covered:
            continue
        if not file.is_file():
            yield Finding(name, "missing", f"not there, though {record_of(folder).name} names it")
        elif sha256_of(file) != digest:
            yield Finding(name, "damaged", "has changed since it was recorded")
        else:
            right += 1
    if right:
        text = f"sha256 as recorded at the first download, in {record_of(folder).name}"
        yield Finding(f"{right} {'more ' * bool(covered)}file{'s' * (right > 1)}", "recorded", text)


def bare_findings(dataset: DataSet, folder: Path, record: dict[str, str]) -> Iterator[Finding]:
    """Of files that are fetched as they are, those that neither a content's checksum nor the record covers."""
    covered = {*record, *(content.name for content in dataset.contents)}
    for remote in dataset.remotes if dataset.archive is None else ():
        file = folder / remote.name
        if {remote.name, unpacked_name(remote.name)} & covered:
            continue
        if not file.is_file():
            yield Finding(remote.name, "missing", "not there")
        elif (wrong := broken(file, remote.checksums)) is not None:
            yield Finding(remote.name, "damaged", f"its {wrong[0].algorithm} is not {wrong[0].digest}")
        elif remote.checksums:
            yield Finding(remote.name, "ok", f"{remote.checksums[0].algorithm} as in {remote.checksums[0].source}")
        else:
            yield Finding(remote.name, "unverified", "no checksum is published, and none was recorded here")


def count_finding(pattern: str, number: int, folder: Path) -> Finding | None:
    found = sum(1 for _ in folder.glob(pattern))
    if found == number:
        return None
    return Finding(pattern, "missing" if found < number else "damaged", f"{found} files, must be {number}")


def leftovers(dataset: DataSet, folder: Path) -> Iterator[Path]:
    where = folder if dataset.archive is None else folder.parent
    for remote in dataset.remotes:
        endings = (".part", ".part.json") if dataset.archive is None else ("", ".part", ".part.json")
        yield from (path for ending in endings if (path := where / f"{remote.name}{ending}").exists())
    if (path := unpacking(dataset, folder.parent)).exists():
        yield path


def unpacking(dataset: DataSet, directory: Path) -> Path:
    """Where an archive is unpacked, before it is renamed into place."""
    return directory / f".{dataset.folder}.unpacking"


def located(dataset: DataSet, directory: Path) -> Path | None:
    """The folder with something of this data set: below `directory`, or that folder itself."""
    for folder in (directory / dataset.folder, directory):
        names = (present(folder, content.name) for content in dataset.contents)
        trees = (next(folder.glob(count.pattern), None) for count in dataset.counts)
        if any(names) or any(trees):
            return folder
    return None


def examine(place: str, data_dir: str | None, screen: Silent) -> list[Report]:
    path = Path(place).expanduser()
    if place in catalogue.CATALOGUE and (data_dir is not None or not path.is_dir()):
        directory = home() if data_dir is None else Path(data_dir).expanduser()
        dataset = catalogue.named(place)
        return [inspect(dataset, located(dataset, directory) or directory / dataset.folder, screen)]
    if not path.is_dir():
        todo = f"name a folder, or one of {', '.join(catalogue.CATALOGUE)}"
        raise FedloomError(f"{place} must be a folder or a known data set", "there is none", todo)
    found = {dataset: folder for dataset in catalogue.CATALOGUE.values() if (folder := located(dataset, path))}
    if not found:
        must = f"{place} must hold files of {', '.join(catalogue.CATALOGUE)}"
        todo = "only those have checksums; data of your own is checked when it is read, by --data"
        raise FedloomError(must, "none of them lies there", todo, code=1)
    return likeliest([inspect(dataset, folder, screen) for dataset, folder in found.items()])


def likeliest(reports: list[Report]) -> list[Report]:
    """One a folder: MNIST and Fashion-MNIST have the same file names, and only their contents tell which it is."""
    best: dict[Path, Report] = {}
    for report in reports:
        other = best.get(report.folder)
        if other is None or len(report.bad) < len(other.bad):
            best[report.folder] = report
    return list(best.values())


def table(report: Report) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    lines = Table("file", "state", "why", box=SIMPLE_HEAD, padding=0, title_justify="left", title=heading(report))
    for one in [*report.bad[:MOST_LINES], *(one for one in report.findings if one.good)]:
        lines.add_row(one.file, one.state, one.text)
    console = Console(markup=False)
    console.print(lines)
    if len(report.bad) > MOST_LINES:
        console.print(f"… and {len(report.bad) - MOST_LINES} more that are missing or damaged")
    for path in report.leftovers:
        console.print(f"left over, can be removed: {path}", highlight=False, soft_wrap=True)
    if report.bad:
        console.print(advice(report), highlight=False, soft_wrap=True)


def heading(report: Report) -> str:
    wrong = len(report.bad)
    return f"{report.dataset.name} in {report.folder}: {f'{wrong} missing or damaged' if wrong else 'good'}"


def advice(report: Report) -> str:
    first = "remove what is damaged, then " if report.damaged else ""
    folder = "the folder, " if report.dataset.archive is not None else ""
    first = f"remove {folder}then " if folder and report.folder.exists() else first
    return f"{first}`fedloom data get {report.dataset.name} --data-dir {report.folder.parent}` fetches what is missing"
