"""The card models that can be simulated.

Real cards are read from their driver, never from here. The last model is fictitious: it has the
3g.30gb profile that the examples in the documentation use.
"""

import difflib
from dataclasses import dataclass

from croupier.core.cards import catalogue_profiles as profiles
from croupier.core.model.mig import MigProfile

NVIDIA = "10de"
"""The PCI vendor id of every model below."""

CLASS_3D_CONTROLLER = "0302"


@dataclass(frozen=True, slots=True)
class CardModel:
    name: str
    product: str
    architecture: str
    memory_mib: int
    pci_device: str
    compute_major: int
    compute_minor: int
    kinds: tuple[MigProfile, ...] = ()
    """The MIG profiles of the model; empty if it does not support MIG."""

    @property
    def mig_capable(self) -> bool:
        return bool(self.kinds)


class UnknownModel(ValueError):
    """The name is not in the catalogue. The message lists the known names."""


MODELS = (
    CardModel("A100-40GB", "NVIDIA-A100-SXM4-40GB", "ampere", 40960, "20b0", 8, 0, profiles.A100_40GB),
    CardModel("A100-80GB", "NVIDIA-A100-SXM4-80GB", "ampere", 81920, "20b2", 8, 0, profiles.A100_80GB),
    CardModel("H100", "NVIDIA-H100-80GB-HBM3", "hopper", 81559, "2330", 9, 0, profiles.H100),
    CardModel("H200", "NVIDIA-H200", "hopper", 143771, "2335", 9, 0, profiles.H200),
    CardModel("A30", "NVIDIA-A30", "ampere", 24576, "20b7", 8, 0, profiles.A30),
    CardModel("L40S", "NVIDIA-L40S", "ada-lovelace", 46068, "26b9", 8, 9),
    CardModel("T4", "Tesla-T4", "turing", 15360, "1eb8", 7, 5),
    CardModel("SIM-70GB", "Croupier-Simulated-70GB", "simulated", 71680, "ff70", 8, 0, profiles.SIM_70GB),
)

_BY_NAME = {model.name.casefold(): model for model in MODELS}


def find(name: str) -> CardModel:
    """The model called `name`, ignoring case."""
    model = _BY_NAME.get(name.casefold())
    if model is None:
        raise UnknownModel(_unknown(name))
    return model


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name.casefold(), _BY_NAME, n=1)
    hint = f"did you mean {_BY_NAME[close[0]].name}? " if close else ""
    return f"no card model is called {name!r}; {hint}known: {', '.join(model.name for model in MODELS)}"
