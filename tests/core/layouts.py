"""Builders for possible MIG layouts from their text."""

from croupier.core.cards import catalogue, mig
from croupier.core.cards.mig import Kind, Layout, Piece


def laid(text: str) -> Layout:
    layout = mig.parse(text)
    assert isinstance(layout, tuple), layout
    return layout


def kinds(model: str) -> tuple[Kind, ...]:
    return catalogue.find(model).kinds


def placed(model: str, text: str) -> tuple[Piece, ...]:
    placements = mig.place(kinds(model), laid(text))
    assert isinstance(placements, tuple), placements
    return placements
