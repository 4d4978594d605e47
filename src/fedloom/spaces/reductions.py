"""The reduction cells of a network: it halves its map at one third and two thirds of its depth.

A network that repeats the searched cells may halve the map at a copy of a cell that did not halve
it during the search.
"""

from __future__ import annotations


def reductions(cells: int) -> set[int]:
    """The numbers of the cells that reduce, in a network of this many cells."""
    return {cells // 3, 2 * cells // 3}


def reducing_positions(cells: int, searched: int) -> set[int]:
    """The searched cells whose copies reduce, in a network of this many cells."""
    return {cell % searched for cell in reductions(cells)}


def unsearched_reductions(cells: int, searched: int) -> list[int]:
    """The cells of a network that reduce, but copy a cell that did not reduce in the search."""
    positions = reductions(searched)
    return [cell for cell in sorted(reductions(cells)) if cell % searched not in positions]


def reductions_in_words(cells: int, searched: int) -> str:
    """Describes the cells that reduce but did not in the search; empty if there are none."""
    sentences = []
    for cell in unsearched_reductions(cells, searched):
        sentences.append(
            f"cell {cell} of the network's {cells} reduces, but is a copy of cell "
            f"{cell % searched}, which did not reduce in the search"
        )
    return "; ".join(sentences)
