"""The library of the fake NVIDIA driver, built once per process."""

from pathlib import Path

import pytest

from tests.node import nvml_env


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if nvml_env.compiler() is None:
        pytest.skip("no C compiler (cc) on this machine: the fake driver cannot be built")
    return nvml_env.build(tmp_path_factory.mktemp("nvml"))
