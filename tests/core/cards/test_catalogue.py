"""The catalogue of card models: lookup by name, and consistency of its rows."""

import re

import pytest

from croupier.core.cards import catalogue
from croupier.core.model import mig


@pytest.mark.parametrize("typed", ["H100", "h100", "A100-80gb", "sim-70GB"])
def test_models_are_found_ignoring_case(typed):
    assert catalogue.find(typed).name.casefold() == typed.casefold()


def test_an_unknown_model_is_refused_with_suggestions():
    with pytest.raises(catalogue.UnknownModel) as refusal:
        catalogue.find("H10")

    assert "did you mean H100?" in str(refusal.value)
    assert all(model.name in str(refusal.value) for model in catalogue.MODELS)


def test_a_dissimilar_name_gets_no_suggestion():
    with pytest.raises(catalogue.UnknownModel) as refusal:
        catalogue.find("quantum")

    assert "did you mean" not in str(refusal.value)


def test_names_products_and_pci_devices_are_unique():
    for field in ("name", "product", "pci_device"):
        values = [getattr(model, field) for model in catalogue.MODELS]
        assert len(set(values)) == len(values), field


@pytest.mark.parametrize("model", catalogue.MODELS, ids=lambda model: model.name)
def test_products_are_valid_label_values(model):
    label = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
    assert label.fullmatch(model.product)
    assert label.fullmatch(model.architecture)
    assert re.fullmatch(r"[0-9a-f]{4}", model.pci_device)


@pytest.mark.parametrize("model", catalogue.MODELS, ids=lambda model: model.name)
def test_every_profile_fits_as_often_as_its_row_says(model):
    counted = {kind.name: mig.max_devices(model.kinds, kind.name) for kind in model.kinds}

    assert counted == {kind.name: kind.most for kind in model.kinds}
    assert model.mig_capable == bool(model.kinds)


@pytest.mark.parametrize("model", catalogue.MODELS, ids=lambda model: model.name)
def test_no_profile_exceeds_the_card(model):
    for kind in model.kinds:
        assert mig.is_profile(kind.name)
        assert kind.memory_mib <= model.memory_mib
        assert len({other.name for other in model.kinds}) == len(model.kinds)
