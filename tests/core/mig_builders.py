"""Builders for possible MIG layouts from their text."""

from croupier.core.cards import catalogue
from croupier.core.model import mig
from croupier.core.model.mig import Layout, MigPlacement, MigProfile


def layout(text: str) -> Layout:
    layout = mig.parse(text)
    assert isinstance(layout, tuple), layout
    return layout


def profiles(model: str) -> tuple[MigProfile, ...]:
    return catalogue.find(model).kinds


def placements(model: str, text: str) -> tuple[MigPlacement, ...]:
    placements = mig.place(profiles(model), layout(text))
    assert isinstance(placements, tuple), placements
    return placements
