"""A site's own samples: how its owner names them, and how a run asks for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedloom.config.models import DataConfig, validated
from fedloom.data.checks import LEAST_OF_A_SITE
from fedloom.data.configured import (
    configured_source,
    image_rules,
    optional_path,
    with_absolute_paths,
)
from fedloom.data.source import Source
from fedloom.data.sources import table_named
from fedloom.data.tables.encoding import Encoding
from fedloom.data.tables.table import Table
from fedloom.deploy.terms import ImageSize
from fedloom.errors import FedloomError

# The flags that name a site's data, and the options in section [data] that they set.
OPTIONS = {
    "data": "name",
    "data-dir": "dir",
    "resize": "resize",
    "fit": "fit",
    "skip-bad": "skip_bad",
}


def site_data(flags: Mapping[str, object]) -> DataConfig:
    """The configuration of a site's data, from flags or from the result of `to_flags`.

    Other flags are ignored.
    """
    section: dict[str, Any] = {}
    for flag, option in OPTIONS.items():
        if flags.get(flag) is not None:
            section[option] = flags[flag]
    data: DataConfig = validated(DataConfig, section)
    return data


def to_flags(data: DataConfig) -> dict[str, str]:
    """The flags that name a site's data, for the process that Flower starts in another folder."""
    data = with_absolute_paths(data)
    flags = {}
    for flag, option in OPTIONS.items():
        if option in data.model_fields_set and getattr(data, option) is not None:
            flags[flag] = str(getattr(data, option))
    return flags


def site_source(
    data: DataConfig,
    size: ImageSize | None = None,
    agreed: Encoding | None = None,
    classes: Sequence[str] = (),
) -> Source:
    """The site's samples, with images of the run's size if the run names one.

    `agreed` is how all sites of the run encode the columns of a table, and `classes` are the run's
    classes. All samples may be of one class, because other sites have the other classes.
    """
    return configured_source(as_asked(data, size), agreed, classes, least=LEAST_OF_A_SITE)


def site_table(data: DataConfig, size: ImageSize | None = None) -> Table | None:
    """The site's table as it was read, or None if its data is not a table.

    A table cannot be resized.
    """
    table = table_named(data.name, optional_path(data.dir))
    if table is None:
        return None
    image_rules(data)  # raises an error for --fit without --resize
    if as_asked(data, size).resize is not None:
        rule = "--resize must be given to images"
        raise FedloomError(rule, f"{data.name} is a table", "leave it out")
    return table


def as_asked(data: DataConfig, size: ImageSize | None) -> DataConfig:
    """The site's data in the size that the run names, or else in the site's own size."""
    if size is None:
        return data
    return data.model_copy(update={"resize": size.resize, "fit": size.fit})
