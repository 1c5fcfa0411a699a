"""pytest fixtures with a real Kubernetes API.

One control plane serves the whole run and starts with the first test that needs it. Each test gets its own
namespace, or restores the cluster-scoped objects. With `--kubeconfig` the tests use another cluster and
clean up afterwards.
"""

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest
import pytest_asyncio

from croupier_lab import shared_cluster
from croupier_lab.binaries import BinarySources
from croupier_lab.cluster import Cluster
from croupier_lab.controlplane import API_COMPONENTS
from croupier_lab.lab import Lab
from croupier_lab.lifecycle import LabPlan
from croupier_lab.progress import LogProgress
from croupier_lab.shared_cluster import ServedKind
from croupier_lab.testrun import TestRun

OUR_FIXTURES = {"cluster", "lab", "private_lab", "real_node", "namespace", "crds", "clean_cluster"}
FAILED_WITH_LAB = pytest.StashKey[bool]()
RUN = pytest.StashKey[TestRun]()
LOGS = pytest.StashKey[list[str]]()
"""Log folders of the labs of failed tests, in this process and its xdist workers."""
WORKER_LOGS = "croupier_lab_logs"
GOGC_PERCENT = "400"
"""GOGC of the Go programs: the API server needs a fifth less CPU to start, for 100 MB more memory."""


class PrivateLab(Protocol):
    """Provides a separate lab for one test: `lab = await private_lab(durable=True)`.

    It contains no objects, except Croupier's CRDs if they are wanted. Unless its components are more than
    the API server, it may have served another test before.
    """

    def __call__(
        self,
        *,
        crds: bool = False,
        parts: tuple[str, ...] = API_COMPONENTS,
        durable: bool = False,
        pods_run: bool = True,
        extra: Mapping[str, tuple[str, ...]] | None = None,
        scheduler: Mapping[str, Any] | None = None,
    ) -> Awaitable[Lab]: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("croupier lab")
    group.addoption("--kubeconfig", type=Path, help="run API tests on this cluster instead of a lab")
    group.addoption("--lab-bin", type=Path, help="folder with the lab's programs (kube-apiserver, etcd, ...)")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("GOGC", GOGC_PERCENT)
    config.stash[FAILED_WITH_LAB] = False
    config.stash[LOGS] = []
    config.stash[RUN] = TestRun(
        BinarySources(named=config.getoption("--lab-bin")),
        # Print only builds and messages, not normal steps.
        LogProgress(terminal_writer(config), steps=False),
    )
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        # CI sends SIGTERM on timeout: tear down as on Ctrl-C.
        signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop everything after the last fixture, in any case."""
    if RUN in config.stash:
        _close(config)


def _close(config: pytest.Config) -> None:
    config.stash[RUN].close(keep_logs=config.stash[FAILED_WITH_LAB])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and OUR_FIXTURES.intersection(getattr(item, "fixturenames", ())):
        item.config.stash[FAILED_WITH_LAB] = True
    return report


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A pytest-xdist worker is killed ten seconds after it has finished, so it must clean up here."""
    config = session.config
    if config.stash[FAILED_WITH_LAB]:
        config.stash[LOGS] += map(str, config.stash[RUN].logs())
    if (output := getattr(config, "workeroutput", None)) is not None:  # a worker
        output[WORKER_LOGS] = config.stash[LOGS]
        _close(config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect the log folders of a finished xdist worker."""
    node.config.stash[LOGS] += getattr(node, "workeroutput", {}).get(WORKER_LOGS, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for logs in config.stash[LOGS]:
        terminalreporter.write_line(f"Logs of the lab the failed tests ran on: {logs}")


@pytest.fixture(scope="session")
def lab(pytestconfig: pytest.Config) -> Lab:
    """The run's shared lab: etcd, kube-apiserver, controller manager, scheduler, KWOK."""
    if pytestconfig.getoption("--kubeconfig"):
        pytest.skip("needs its own lab, but --kubeconfig selects another cluster")
    return pytestconfig.stash[RUN].shared()


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Cluster:
    """The cluster under test: the shared lab, or that of --kubeconfig."""
    foreign: Path | None = pytestconfig.getoption("--kubeconfig")
    if foreign is None:
        shared: Lab = request.getfixturevalue("lab")
        return shared.cluster
    return pytestconfig.stash[RUN].foreign(foreign)


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh namespace whose default service account exists."""
    name = shared_cluster.create_namespace(cluster, request.node.name)
    yield name
    shared_cluster.delete_namespace(cluster, name, _namespaced(request))


@pytest.fixture(scope="session")
def crds(cluster: Cluster, pytestconfig: pytest.Config) -> Iterator[dict[str, dict[str, Any]]]:
    """The CRDs of Croupier, installed in the cluster."""
    definitions = _definitions()
    foreign = pytestconfig.getoption("--kubeconfig") is not None
    if foreign and (reason := shared_cluster.crd_conflict(cluster, definitions)):
        pytest.skip(reason)
    created = shared_cluster.install(cluster, definitions)
    yield definitions
    if foreign:
        shared_cluster.uninstall(cluster, created)


@pytest.fixture
def clean_cluster(
    cluster: Cluster, crds: dict[str, dict[str, Any]], pytestconfig: pytest.Config
) -> Iterator[None]:
    """Restores Nodes and cluster-scoped custom resources after the test."""
    kinds = shared_cluster.cluster_scoped(crds)
    restored = (shared_cluster.NODES, *kinds)
    foreign = pytestconfig.getoption("--kubeconfig") is not None
    if foreign and (reason := shared_cluster.existing_objects(cluster, kinds)):
        pytest.skip(reason)
    before = shared_cluster.snapshot(cluster, restored)
    yield
    shared_cluster.restore(cluster, restored, before, spare_real_nodes=foreign)


@pytest_asyncio.fixture
async def private_lab(pytestconfig: pytest.Config) -> AsyncIterator[PrivateLab]:
    """A factory of separate labs, for fault injection."""
    if pytestconfig.getoption("--kubeconfig"):
        pytest.skip("injects faults into the control plane, but --kubeconfig selects another cluster")
    run = pytestconfig.stash[RUN]
    raised: list[Lab] = []

    async def factory(
        *,
        crds: bool = False,
        parts: tuple[str, ...] = API_COMPONENTS,
        durable: bool = False,
        pods_run: bool = True,
        extra: Mapping[str, tuple[str, ...]] | None = None,
        scheduler: Mapping[str, Any] | None = None,
    ) -> Lab:
        plan = LabPlan(
            parts=parts, durable=durable, pods_run=pods_run, extra=extra or {}, scheduler=scheduler or {}
        )
        raised.append(await run.private(plan, _definitions() if crds else None))
        return raised[-1]

    yield factory
    for lab in raised:
        await run.end(lab, keep_logs=pytestconfig.stash[FAILED_WITH_LAB])


@pytest.fixture(scope="module")
def real_node(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Iterator[str]:
    """Joins this machine to the shared lab for the tests of one file; the name of the node.

    It leaves afterwards, because other files may count nodes or expect unschedulable pods. A module variable
    KUBELET overrides fields of the KubeletConfiguration.
    """
    from croupier_lab import realnode  # noqa: PLC0415 (imports dependencies of real nodes)

    if reason := realnode.obstacle():
        pytest.skip(reason)
    request.getfixturevalue("lab")
    run = pytestconfig.stash[RUN]
    yield run.join_real_node(getattr(request.module, "KUBELET", None))
    run.part_with_real_node()


def _definitions() -> dict[str, dict[str, Any]]:
    from croupier.api import crds  # noqa: PLC0415 (every pytest run loads this plugin; few need the API)

    return crds.definitions()


def _namespaced(request: pytest.FixtureRequest) -> tuple[ServedKind, ...]:
    if "crds" not in request.fixturenames:
        return ()
    return shared_cluster.namespaced(request.getfixturevalue("crds"))


def terminal_writer(config: pytest.Config) -> Callable[[str], None]:
    """Returns a function that writes a line to the terminal in spite of pytest's capture."""

    def write(text: str) -> None:
        capture = config.pluginmanager.getplugin("capturemanager")
        reporter = config.pluginmanager.getplugin("terminalreporter")
        if capture is None or reporter is None:
            return
        with capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            reporter.write_line(text)

    return write
