"""docs/lab.md mentions every command of the lab and every option of `lab up`."""

import typer

from croupier_lab.cli.lab import app, up
from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs/lab.md").read_text()


def test_every_verb_of_the_lab_is_on_its_page():
    verbs = typer.main.get_group(app).commands

    assert [name for name in verbs if f"croupier lab {name}" not in PAGE] == []


def test_every_option_of_up_is_on_its_page():
    command = typer.main.get_group(app).commands[up.__name__]
    options = [name for option in command.params for name in option.opts if name.startswith("--")]

    assert "--agents" in options
    assert [name for name in options if name not in PAGE] == []
