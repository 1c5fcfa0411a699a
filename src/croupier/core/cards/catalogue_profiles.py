"""MIG profiles of the models in the catalogue.

Two tables, because models of one family differ only in amounts: placements and driver ids belong to the
family, memory and engines to the model. The profiles of a real card are read from its driver.
"""

from dataclasses import dataclass
from typing import Final

from croupier.core.model.mig import MigProfile


@dataclass(frozen=True, slots=True)
class _Shape:
    """Placement and driver ids of a profile, shared by all models of a family."""

    compute: int
    memory: int
    starts: tuple[int, ...]
    most: int
    gpu_instance: int
    compute_instance: int


@dataclass(frozen=True, slots=True)
class _Amounts:
    """Resources of a profile on one model. The engines are copy, encoder, decoder and OFA."""

    shape: str
    name: str
    memory_mib: int
    multiprocessors: int
    engines: tuple[int, int, int, int]


# Compute slices, memory slices, starts, maximum number, GPU instance profile, compute instance profile.
_SEVENTHS: Final = {
    "1g": _Shape(1, 1, (0, 1, 2, 3, 4, 5, 6), 7, 19, 0),
    "1g+me": _Shape(1, 1, (0, 1, 2, 3, 4, 5, 6), 1, 20, 0),
    "1g double": _Shape(1, 2, (0, 2, 4, 6), 4, 15, 0),
    "2g": _Shape(2, 2, (0, 2, 4), 3, 14, 1),
    "3g": _Shape(3, 4, (0, 4), 2, 9, 2),
    "4g": _Shape(4, 4, (0,), 1, 5, 3),
    "7g": _Shape(7, 8, (0,), 1, 0, 4),
}
_QUARTERS: Final = {
    "1g": _Shape(1, 1, (0, 1, 2, 3), 4, 14, 0),
    "2g": _Shape(2, 2, (0, 2), 2, 5, 1),
    "4g": _Shape(4, 4, (0,), 1, 0, 3),
}
# The simulated model has seven memory slices, so 3g takes three of them instead of four.
_SEVEN_OF_SEVEN: Final = {
    "1g": _Shape(1, 1, (0, 1, 2, 3, 4, 5, 6), 7, 19, 0),
    "1g+me": _Shape(1, 1, (0, 1, 2, 3, 4, 5, 6), 1, 20, 0),
    "1g double": _Shape(1, 2, (0, 2, 4), 3, 15, 0),
    "2g": _Shape(2, 2, (0, 2, 4), 3, 14, 1),
    "3g": _Shape(3, 3, (0, 4), 2, 9, 2),
    "4g": _Shape(4, 4, (0,), 1, 5, 3),
    "7g": _Shape(7, 7, (0,), 1, 0, 4),
}


def _profiles(shapes: dict[str, _Shape], *rows: _Amounts) -> tuple[MigProfile, ...]:
    return tuple(_profile(shapes[row.shape], row) for row in rows)


def _profile(shape: _Shape, row: _Amounts) -> MigProfile:
    copy, encoder, decoder, ofa = row.engines
    return MigProfile(
        name=row.name,
        memory_slices=shape.memory,
        starts=shape.starts,
        compute_slices=shape.compute,
        memory_mib=row.memory_mib,
        multiprocessors=row.multiprocessors,
        gpu_instance=shape.gpu_instance,
        compute_instance=shape.compute_instance,
        copy=copy,
        encoder=encoder,
        decoder=decoder,
        ofa=ofa,
        most=shape.most,
    )


A100_40GB: Final = _profiles(
    _SEVENTHS,
    _Amounts("1g", "1g.5gb", 4864, 14, (1, 0, 0, 0)),
    _Amounts("1g+me", "1g.5gb+me", 4864, 14, (1, 0, 1, 1)),
    _Amounts("1g double", "1g.10gb", 9856, 14, (1, 0, 1, 0)),
    _Amounts("2g", "2g.10gb", 9856, 28, (2, 0, 1, 0)),
    _Amounts("3g", "3g.20gb", 19968, 42, (3, 0, 2, 0)),
    _Amounts("4g", "4g.20gb", 19968, 56, (4, 0, 2, 0)),
    _Amounts("7g", "7g.40gb", 40192, 98, (7, 0, 5, 1)),
)
A100_80GB: Final = _profiles(
    _SEVENTHS,
    _Amounts("1g", "1g.10gb", 9728, 14, (1, 0, 0, 0)),
    _Amounts("1g+me", "1g.10gb+me", 9728, 14, (1, 0, 1, 1)),
    _Amounts("1g double", "1g.20gb", 19968, 14, (1, 0, 1, 0)),
    _Amounts("2g", "2g.20gb", 19968, 28, (2, 0, 1, 0)),
    _Amounts("3g", "3g.40gb", 40192, 42, (3, 0, 2, 0)),
    _Amounts("4g", "4g.40gb", 40192, 56, (4, 0, 2, 0)),
    _Amounts("7g", "7g.80gb", 81152, 98, (7, 0, 5, 1)),
)
H100: Final = _profiles(
    _SEVENTHS,
    _Amounts("1g", "1g.10gb", 9984, 16, (1, 0, 1, 0)),
    _Amounts("1g+me", "1g.10gb+me", 9984, 16, (1, 0, 1, 1)),
    _Amounts("1g double", "1g.20gb", 20096, 26, (1, 0, 1, 0)),
    _Amounts("2g", "2g.20gb", 20096, 32, (2, 0, 2, 0)),
    _Amounts("3g", "3g.40gb", 40448, 60, (3, 0, 3, 0)),
    _Amounts("4g", "4g.40gb", 40448, 64, (4, 0, 4, 0)),
    _Amounts("7g", "7g.80gb", 81152, 132, (8, 0, 7, 1)),
)
H200: Final = _profiles(
    _SEVENTHS,
    _Amounts("1g", "1g.18gb", 16384, 16, (1, 0, 1, 0)),
    _Amounts("1g+me", "1g.18gb+me", 16384, 16, (1, 0, 1, 1)),
    _Amounts("1g double", "1g.35gb", 33280, 26, (1, 0, 1, 0)),
    _Amounts("2g", "2g.35gb", 33280, 32, (2, 0, 2, 0)),
    _Amounts("3g", "3g.71gb", 70144, 60, (3, 0, 3, 0)),
    _Amounts("4g", "4g.71gb", 70144, 64, (4, 0, 4, 0)),
    _Amounts("7g", "7g.141gb", 143360, 132, (8, 0, 7, 1)),
)
A30: Final = _profiles(
    _QUARTERS,
    _Amounts("1g", "1g.6gb", 5952, 14, (1, 0, 0, 0)),
    _Amounts("2g", "2g.12gb", 11968, 28, (2, 0, 2, 0)),
    _Amounts("4g", "4g.24gb", 24000, 56, (4, 0, 4, 1)),
)
SIM_70GB: Final = _profiles(
    _SEVEN_OF_SEVEN,
    _Amounts("1g", "1g.10gb", 10240, 14, (1, 0, 0, 0)),
    _Amounts("1g+me", "1g.10gb+me", 10240, 14, (1, 0, 1, 1)),
    _Amounts("1g double", "1g.20gb", 20480, 14, (1, 0, 1, 0)),
    _Amounts("2g", "2g.20gb", 20480, 28, (2, 0, 1, 0)),
    _Amounts("3g", "3g.30gb", 30720, 42, (3, 0, 2, 0)),
    _Amounts("4g", "4g.40gb", 40960, 56, (4, 0, 2, 0)),
    _Amounts("7g", "7g.70gb", 71680, 98, (7, 0, 5, 1)),
)
