"""The library of the fake NVIDIA driver, built once per process."""

from pathlib import Path

import pytest

from tests.node import nvml_bench


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if nvml_bench.compiler() is None:
        pytest.skip("no C compiler (cc) on this machine: the fake driver cannot be built")
    return nvml_bench.build(tmp_path_factory.mktemp("nvml"))
