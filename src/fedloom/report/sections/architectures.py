"""The section of architectures: of tiers, of clients, or of a shared base and personal parts."""

from __future__ import annotations

from fedloom.report.html import Safe
from fedloom.report.parts import section
from fedloom.report.sections.cells import (
    all_of_them,
    client_architectures,
    fixed,
    of_tiers,
    the_only_one,
    undrawn,
)
from fedloom.report.sections.two_stacks import two_stacks
from fedloom.report.story import Story

KEY = "cells"
HEADING = "Architectures"


def architectures(story: Story) -> Safe:
    if story.result is not None and story.result.tiers:
        return section(KEY, HEADING, of_tiers(story.result.tiers))
    clients = client_architectures(story)
    in_two_parts = two_stacks(story, clients)
    if not clients:
        return section(KEY, HEADING, fixed(story), in_two_parts, undrawn(story, 0))
    if len({client.arch for client in clients}) == 1:
        content = the_only_one(story, clients)
    elif in_two_parts is not None:
        content = in_two_parts
    else:
        content = all_of_them(story, clients)
    return section(KEY, HEADING, content, undrawn(story, len(clients)))
