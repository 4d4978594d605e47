"""The section of architectures: of tiers, of clients, or a shared base and personal parts."""

from __future__ import annotations

from fedloom.report.html import Safe
from fedloom.report.parts import section
from fedloom.report.sections.cells import (
    architecture_list,
    client_architectures,
    single_architecture,
    tier_architectures,
    undrawable_note,
    why_nothing_is_drawn,
)
from fedloom.report.sections.two_stacks import two_stacks
from fedloom.report.story import Story

KEY = "cells"
HEADING = "Architectures"


def architectures(story: Story) -> Safe:
    if story.result is not None and story.result.tiers:
        return section(KEY, HEADING, tier_architectures(story.result.tiers))
    clients = client_architectures(story)
    in_two_parts = two_stacks(story, clients)
    if not clients:
        reason = why_nothing_is_drawn(story)
        return section(KEY, HEADING, reason, in_two_parts, undrawable_note(story, 0))
    if len({client.arch for client in clients}) == 1:
        content = single_architecture(story, clients)
    elif in_two_parts is not None:
        content = in_two_parts
    else:
        content = architecture_list(story, clients)
    return section(KEY, HEADING, content, undrawable_note(story, len(clients)))
