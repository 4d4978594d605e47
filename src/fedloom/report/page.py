"""report.html: the report of one run, as a single file that loads nothing from elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from fedloom.records.folder import RunFolder
from fedloom.report.html import Safe, joined, tag
from fedloom.report.sections.architectures import architectures
from fedloom.report.sections.attendance import attendance
from fedloom.report.sections.classes import data
from fedloom.report.sections.clients import clients
from fedloom.report.sections.clusters import clusters
from fedloom.report.sections.convergence import convergence
from fedloom.report.sections.costs import costs
from fedloom.report.sections.headline import data_title, headline
from fedloom.report.sections.origin import origin
from fedloom.report.sections.privacy import privacy
from fedloom.report.sections.routes import routes
from fedloom.report.sections.search import search
from fedloom.report.sections.sizes import sizes
from fedloom.report.sections.stages import stages
from fedloom.report.sections.tiers import tiers
from fedloom.report.sections.timeline import timeline
from fedloom.report.story import Reader, Story
from fedloom.report.style import LIVE, PAGES, STYLE, policy
from fedloom.version import __version__

log = logging.getLogger("fedloom")

NAME = "report.html"
SECTIONS: Mapping[str, Callable[[Story], Safe]] = {
    "headline": headline,
    "convergence": convergence,
    "stages": stages,
    "clients": clients,
    "tiers": tiers,
    "data": data,
    "cells": architectures,
    "routes": routes,
    "search": search,
    "sizes": sizes,
    "timeline": timeline,
    "clusters": clusters,
    "attendance": attendance,
    "costs": costs,
    "privacy": privacy,
    "origin": origin,
}
LINKS = {
    "convergence": "Convergence",
    "stages": "Stages",
    "clients": "Clients",
    "tiers": "Tiers",
    "data": "Data and classes",
    "cells": "Architectures",
    "routes": "Paths of samples",
    "search": "Search",
    "sizes": "Sizes",
    "timeline": "Simulated clock",
    "clusters": "Clusters",
    "attendance": "Who took part",
    "costs": "Traffic and time",
    "privacy": "Privacy",
    "origin": "Reproduce",
}


def write_report(folder: RunFolder) -> Path:
    """Write or refresh a run's report.html."""
    folder.write_text(NAME, run_page(Reader(folder).read()))
    return folder.path / NAME


def try_report(folder: RunFolder, write: Callable[[RunFolder], Path] = write_report) -> None:
    """Write the report at the end of a run; a failure is only logged.

    The results are stored by then, and a report that fails must not make the run fail.
    """
    try:
        write(folder)
    except Exception:
        log.warning("the report of %s could not be written", folder.path, exc_info=True)


def run_page(story: Story, *, live: bool = False) -> str:
    links: Mapping[str, str] = LINKS
    if live:
        links = {}  # sections of a live page appear and disappear, so it has no menu
    return page(title(story), sections(story), links, live=live)


def title(story: Story) -> str:
    return f"{story.method} on {data_title(story)}"


def sections(story: Story) -> dict[str, Safe]:
    return {key: draw(story) for key, draw in SECTIONS.items()}


def page(
    name: str,
    parts: Mapping[str, Safe],
    links: Mapping[str, str],
    *,
    live: bool = False,
) -> str:
    """Return the whole HTML document.

    `parts` holds the sections by their ids, `links` the menu's texts for some of them.
    """
    script = PAGES
    if live:
        script += LIVE
    made_by = f"Made by fedloom {__version__} from the run's files."
    footer = tag("footer", f"{made_by} This page loads nothing from elsewhere.")
    body = tag(
        "body",
        header(parts, links, live=live),
        tag("main", *parts.values(), id="main"),
        footer,
        tag("script", Safe(script)),
    )
    document = tag("html", head(name, script, live=live), body, lang="en")
    return f"<!doctype html>\n{document}\n"


def head(name: str, script: str, *, live: bool) -> Safe:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy(script, live=live)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", name),
        tag("style", Safe(STYLE)),
    )


def header(parts: Mapping[str, Safe], links: Mapping[str, str], *, live: bool) -> Safe:
    """Return the page's header, whose menu links to every section that is not hidden."""
    menu = []
    for key, label in links.items():
        if not parts[key].startswith(f'<section id="{key}" hidden'):
            menu.append(tag("li", tag("a", label, href=f"#{key}")))
    badge = None
    if live:
        badge = joined(" ", tag("span", "live", id="standing", class_="live", role="status"))
    return tag(
        "header",
        tag("a", "To the report", href="#main", class_="skip"),
        tag("p", "FedLoom report", badge),
        tag("nav", tag("ul", menu), aria_label="Sections"),
    )
