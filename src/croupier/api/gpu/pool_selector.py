"""spec.deviceSelector of a GPUPool: which cards may join it."""

from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta, field

from croupier.api.gpu.device import InventoryID, Text
from croupier.api.meta import Labels, MIGProfile
from croupier.api.wire import Rule, Wire, cel_rules, example, matches, rule

PCIID: TypeAlias = Annotated[
    str,
    Meta(max_length=9),
    matches(
        "^[0-9a-f]{4}/[0-9a-f]{4}$", "must be vendor/device in lower-case hexadecimal, such as 10de/2331"
    ),
    example("10de/2331"),
]
IndexRange: TypeAlias = Annotated[
    str,
    Meta(max_length=7),
    cel_rules(
        rule(
            "self.matches('^[0-9]{1,3}(-[0-9]{1,3})?$')"
            " && int(self.split('-')[0]) <= int(self.split('-')[size(self.split('-')) - 1])",
            "must be a card index or a rising range of indexes, such as 3 or 0-1",
        )
    ),
    example("0-3"),
]


class DeviceFilter(Wire, frozen=True, kw_only=True):
    """Matches cards by their properties."""

    inventory_ids: Annotated[tuple[InventoryID, ...], Meta(max_length=256)] = ()
    """Matches cards with one of these inventoryIDs."""
    pci_ids: Annotated[tuple[PCIID, ...], Meta(max_length=64), example(["10de/2331"])] = ()
    """Matches cards with one of these PCI vendor/device IDs."""
    indexes: Annotated[tuple[IndexRange, ...], Meta(max_length=64), example(["0-3", "5"])] = ()
    """Matches cards by their index on the node: a number such as 3, or a range such as 0-1."""
    labels: Annotated[Labels, example({"gpu.deckhouse.io/node": "node-1"})] = field(default_factory=dict)
    """Matches cards whose GPUDevice has all of these labels."""
    products: Annotated[tuple[Text, ...], Meta(max_length=64), example(["NVIDIA H100 80GB HBM3"])] = ()
    """Matches cards with one of these model names."""
    mig_profiles: Annotated[tuple[MIGProfile, ...], Meta(max_length=64), example(["1g.10gb", "2g.20gb"])] = ()
    """Matches cards that support all of these MIG profiles."""
    mig_capable: bool | None = None
    """Matches only cards that support MIG if true, and only cards that do not support it if false."""


def _excludes_all(name: str) -> Rule:
    """Refuse a selector that excludes everything that it includes in this field."""
    included, excluded = f"self.include.{name}", f"self.exclude.{name}"
    return rule(
        f"!has(self.include) || !has(self.exclude) || !has({included}) || !has({excluded})"
        f" || size({included}) == 0 || {included}.exists(value, !(value in {excluded}))",
        f"no card can match: exclude has all {name} of include",
    )


class DeviceSelector(Wire, frozen=True, kw_only=True):
    """Selects the cards that may join the pool: a card must match include and must not match exclude."""

    rules: ClassVar[tuple[Rule, ...]] = (
        _excludes_all("inventoryIDs"),
        _excludes_all("pciIDs"),
        _excludes_all("products"),
        rule(
            "!has(self.include) || !has(self.exclude)"
            " || !has(self.include.migCapable) || !has(self.exclude.migCapable)"
            " || self.include.migCapable != self.exclude.migCapable",
            "no card can match: include and exclude have the same migCapable",
        ),
    )

    include: DeviceFilter = DeviceFilter()
    """A card matches if every field that is set matches. An empty filter matches all cards."""
    exclude: DeviceFilter = DeviceFilter()
    """A card is excluded if any field that is set matches, even if include matches too."""
