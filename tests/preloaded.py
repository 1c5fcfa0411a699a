"""Imports what forked processes of tests need (tests/forks.py)."""

import gc
import importlib
import pkgutil

import pytest  # noqa: F401 (a fork imports the program of the test run first)

PACKAGES = ("api", "capacity", "cli", "controllers", "core", "extender", "kube", "ops", "ui", "wiring")

for package in PACKAGES:
    parent = importlib.import_module(f"croupier.{package}")
    for module in pkgutil.walk_packages(parent.__path__, f"{parent.__name__}."):
        if not module.name.endswith("__main__"):  # its import runs the command
            importlib.import_module(module.name)
gc.freeze()  # or every fork copies the memory of all modules at its first collection
