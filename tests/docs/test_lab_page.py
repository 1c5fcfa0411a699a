"""The page of the lab knows everything a lab can do."""

import typer

from croupier.cli.lab import app, up
from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs/lab.md").read_text()


def test_every_verb_of_the_lab_is_on_its_page():
    verbs = typer.main.get_group(app).commands

    assert [name for name in verbs if f"croupier lab {name}" not in PAGE] == []


def test_every_option_of_up_is_on_its_page():
    raising = typer.main.get_group(app).commands[up.__name__]
    options = [word for one in raising.params for word in one.opts if word.startswith("--")]

    assert "--agents" in options
    assert [one for one in options if one not in PAGE] == []
