"""A site's own samples: as its owner named them on the command line, and as a run asks for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedloom.config.models import DataConfig, validated
from fedloom.data.checks import LEAST_OF_A_SITE
from fedloom.data.configured import (
    configured_source,
    found_anywhere,
    image_rules,
    optional_path,
)
from fedloom.data.source import Source
from fedloom.data.sources import table_named
from fedloom.data.tables.encoding import Encoding
from fedloom.data.tables.table import Table
from fedloom.deploy.terms import ImageSize
from fedloom.errors import FedloomError

# What a site's process is told of its data, by the names of the flags.
OPTIONS = {
    "data": "name",
    "data-dir": "dir",
    "resize": "resize",
    "fit": "fit",
    "skip-bad": "skip_bad",
}


def site_data(flags: Mapping[str, object]) -> DataConfig:
    """Of flags by their names, or of what `to_words` made of them; others are left alone."""
    section: dict[str, Any] = {}
    for flag, option in OPTIONS.items():
        if flags.get(flag) is not None:
            section[option] = flags[flag]
    data: DataConfig = validated(DataConfig, section)
    return data


def to_words(data: DataConfig) -> dict[str, str]:
    """For the process that Flower starts, which works in another folder."""
    data = found_anywhere(data)
    words = {}
    for flag, option in OPTIONS.items():
        if option in data.model_fields_set and getattr(data, option) is not None:
            words[flag] = str(getattr(data, option))
    return words


def site_source(
    data: DataConfig,
    size: ImageSize | None = None,
    agreed: Encoding | None = None,
    classes: Sequence[str] = (),
) -> Source:
    """The site's samples, with images of the run's size, if it names one.

    `agreed` is what the columns of a table become at all sites of the run, and `classes` its
    classes. Samples may be of one class: other sites have the others.
    """
    return configured_source(as_asked(data, size), agreed, classes, least=LEAST_OF_A_SITE)


def site_table(data: DataConfig, size: ImageSize | None = None) -> Table | None:
    """The site's table, as it was read; None: it has none. Nothing in it can be resized."""
    table = table_named(data.name, optional_path(data.dir))
    if table is None:
        return None
    image_rules(data)  # whose error names a --fit without --resize
    if as_asked(data, size).resize is not None:
        found = f"{data.name} is a table"
        raise FedloomError("--resize must be given to images", found, "leave it out")
    return table


def as_asked(data: DataConfig, size: ImageSize | None) -> DataConfig:
    """A run's size holds at every site; a site's own where the run names none."""
    if size is None:
        return data
    return data.model_copy(update={"resize": size.resize, "fit": size.fit})
