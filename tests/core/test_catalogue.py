"""The catalogue is data: what a person may type, and what no row may get wrong."""

import re

import pytest

from croupier.core.cards import catalogue, mig


@pytest.mark.parametrize("typed", ["H100", "h100", "A100-80gb", "sim-70GB"])
def test_a_model_is_found_whatever_its_case(typed):
    assert catalogue.find(typed).name.casefold() == typed.casefold()


def test_an_unknown_model_is_refused_with_the_closest_and_all_known():
    with pytest.raises(catalogue.UnknownModel) as refusal:
        catalogue.find("H10")

    assert "did you mean H100?" in str(refusal.value)
    assert all(model.name in str(refusal.value) for model in catalogue.MODELS)


def test_a_name_like_no_other_gets_no_guess():
    with pytest.raises(catalogue.UnknownModel) as refusal:
        catalogue.find("quantum")

    assert "did you mean" not in str(refusal.value)


def test_names_products_and_pci_devices_are_unique():
    for field in ("name", "product", "pci_device"):
        values = [getattr(model, field) for model in catalogue.MODELS]
        assert len(set(values)) == len(values), field


@pytest.mark.parametrize("model", catalogue.MODELS, ids=lambda model: model.name)
def test_what_becomes_a_label_is_a_valid_label_value(model):
    label = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
    assert label.fullmatch(model.product)
    assert label.fullmatch(model.architecture)
    assert re.fullmatch(r"[0-9a-f]{4}", model.pci_device)


@pytest.mark.parametrize("model", catalogue.MODELS, ids=lambda model: model.name)
def test_every_model_can_be_filled_with_each_kind_as_often_as_its_row_says(model):
    counted = {kind.name: mig.how_many(model.kinds, kind.name) for kind in model.kinds}

    assert counted == {kind.name: kind.most for kind in model.kinds}
    assert model.mig_capable == bool(model.kinds)


@pytest.mark.parametrize("model", catalogue.MODELS, ids=lambda model: model.name)
def test_no_kind_has_more_than_the_card(model):
    for kind in model.kinds:
        assert mig.is_profile(kind.name)
        assert kind.memory_mib <= model.memory_mib
        assert len({other.name for other in model.kinds}) == len(model.kinds)
