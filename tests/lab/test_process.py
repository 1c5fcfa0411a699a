"""Processes that a lab stops for a while."""

import sys

import psutil

from croupier_lab import process
from croupier_lab.process import Program
from tests.polling import until_blocking

THREADS = 4
BUSY = f"""
import threading
for _ in range({THREADS}):
    threading.Thread(target=lambda: [hash(str(number)) for number in range(10**9)]).start()
"""


def test_no_thread_of_a_frozen_process_runs(tmp_path):
    busy = process.start(Program("busy", (sys.executable, "-c", BUSY)), tmp_path)
    running = psutil.Process(busy.pid)
    try:
        until_blocking(lambda: running.num_threads() > THREADS, "all threads to start")
        for _ in range(5):
            process.freeze(busy)
            states = {psutil.Process(thread.id).status() for thread in running.threads()}
            process.thaw(busy)
            assert states == {psutil.STATUS_STOPPED}
    finally:
        process.kill(busy)


async def test_a_killed_process_is_not_frozen(tmp_path):
    ended = process.start(Program("ended", (sys.executable, "-c", "input()")), tmp_path)
    process.kill(ended)
    process.freeze(ended)

    assert await process.gone(ended, within=10)
