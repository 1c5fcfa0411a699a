"""MIG layouts by their spelling, for tests that mean possible ones."""

from croupier.core.cards import catalogue, mig
from croupier.core.cards.mig import Kind, Layout, Piece


def laid(text: str) -> Layout:
    found = mig.parse(text)
    assert isinstance(found, tuple), found
    return found


def kinds(model: str) -> tuple[Kind, ...]:
    return catalogue.find(model).kinds


def placed(model: str, text: str) -> tuple[Piece, ...]:
    found = mig.place(kinds(model), laid(text))
    assert isinstance(found, tuple), found
    return found
