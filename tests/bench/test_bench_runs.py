"""Smoke test of all benchmarks with tiny sizes."""

import asyncio
import io
import os
import sys
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from bench import figures
from bench.figures import Figure, Report
from bench.registry import BENCHES

SECONDS = 160

ROOT = Path(__file__).parents[2]


async def test_every_benchmark_runs_and_writes_results(pytestconfig, tmp_path):
    if pytestconfig.getoption("--kubeconfig"):
        pytest.skip("benchmarks start their own lab, but --kubeconfig selects another cluster")
    programs = pytestconfig.getoption("--lab-bin")
    output = tmp_path / "latest.json"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench", "--quick", "--output", str(output)),
        *(("--bin", str(programs)) if programs else ()),
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output_text = (await process.communicate())[0].decode()

    assert process.returncode == 0, output_text
    report = msgspec.json.decode(output.read_bytes(), type=Report)
    assert {figure.bench for figure in report.figures} == set(BENCHES)
    assert all(value >= 0 for figure in report.figures for value in figure.values.values()), report.figures
    measured = [figure for figure in report.figures if figure.unit]  # counts may be zero
    assert all(value > 0 for figure in measured for value in figure.values.values()), measured
    assert "kopf" in output_text


def test_the_table_compares_all_subjects():
    sync = Figure("sync", "first sync", "s", {"croupier": 2.0, "kopf": 50.0})
    made = figures.report([sync, Figure("store", "events", "/s", {"croupier": 12345.0})], quick=False)
    console = Console(width=120, record=True, file=io.StringIO())

    console.print(figures.table(made))

    text = console.export_text()
    assert "50 s (×25)" in text
    assert "12,345 /s" in text
