"""Which clients are available and which drop out, according to a run's configuration."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from fedloom.config.file_rows import FaultConfig, IntervalConfig
from fedloom.config.models import ClockConfig
from fedloom.cost.devices import is_file
from fedloom.federation.server.availability import (
    Attendance,
    Fault,
    faults_in,
    schedule_in,
    schedule_of,
)
from fedloom.federation.server.availability_files import read_faults, read_schedule


def clock_read(config: ClockConfig) -> ClockConfig:
    """The configuration with the rows of its files, which a resumed run does not need then."""
    changes: dict[str, object] = {}
    if config.intervals is None and is_file(config.availability):
        schedule = read_schedule(Path(config.availability))
        rows = []
        for client, intervals in enumerate(schedule.of_client):
            for interval in intervals:
                rows.append(IntervalConfig(client=client, **asdict(interval)))
        changes |= {"intervals": rows, "period": schedule.period}
    if config.fault_rows is None and config.faults is not None:
        faults = read_faults(Path(config.faults))
        changes["fault_rows"] = [FaultConfig(**asdict(fault)) for fault in faults]
    return config.model_copy(update=changes)


def attendance_in(config: ClockConfig, clients: int, seed: int, hops: int) -> Attendance:
    """The attendance of this many clients, whose rounds have this many hops."""
    faults = [Fault(row.round, row.hop, row.client) for row in config.fault_rows or ()]
    return Attendance(
        population=clients,
        seed=seed,
        schedule=schedule_in(config.availability, schedule_of(config), clients, seed),
        dropout=config.dropout,
        faults=faults_in(faults, clients, hops),
    )
