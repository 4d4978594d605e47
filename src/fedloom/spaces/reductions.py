"""Where a network of cells halves its map: at a third and at two thirds of its depth.

A network that repeats the cells that were searched may halve it at a copy of a cell that did not
halve it in the search.
"""

from __future__ import annotations


def reductions(cells: int) -> set[int]:
    """The cells that reduce, of so many."""
    return {cells // 3, 2 * cells // 3}


def reducing_positions(cells: int, searched: int) -> set[int]:
    """Those of the searched cells whose copies reduce in a network of so many cells."""
    return {cell % searched for cell in reductions(cells)}


def unsearched_reductions(cells: int, searched: int) -> list[int]:
    """The cells of a network that reduce, but are copies of one that did not in the search."""
    positions = reductions(searched)
    return [cell for cell in sorted(reductions(cells)) if cell % searched not in positions]


def reductions_in_words(cells: int, searched: int) -> str:
    """Says which cells reduce that did not in the search; empty: none."""
    sentences = []
    for cell in unsearched_reductions(cells, searched):
        sentences.append(
            f"cell {cell} of the network's {cells} reduces, but is a copy of cell "
            f"{cell % searched}, which did not reduce in the search"
        )
    return "; ".join(sentences)
