"""A real Kubernetes for tests.

One control plane serves a whole run and starts with the first test that asks
for it; each test gets a namespace of its own, or leaves the cluster-scoped
objects as it found them. With `--kubeconfig` the same tests talk to any other
cluster instead, and leave nothing behind there.
"""

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest
import pytest_asyncio

from croupier.lab import borrowed
from croupier.lab.binaries import Sources
from croupier.lab.cluster import Cluster
from croupier.lab.controlplane import FOUNDATION
from croupier.lab.lab import Lab
from croupier.lab.lifecycle import Plan
from croupier.lab.progress import Plain
from croupier.lab.testrun import TestRun

OUR_FIXTURES = {"cluster", "lab", "private_lab", "real_node", "namespace", "crds", "clean_cluster"}
FAILED_WITH_LAB = pytest.StashKey[bool]()
RUN = pytest.StashKey[TestRun]()
LOGS = pytest.StashKey[list[str]]()
"""Of the labs failed tests ran on: those of this process, and of the workers it had."""
WORKER_LOGS = "croupier_lab_logs"
SELDOM = "400"
"""How far Go programs let garbage grow, in percent: an API server takes a fifth less CPU to begin, and a
run begins a hundred; each then needs 100 MB more."""


class PrivateLab(Protocol):
    """Raises a lab of the test's own: `lab = await private_lab(durable=True)`."""

    def __call__(
        self,
        *,
        parts: tuple[str, ...] = FOUNDATION,
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
    os.environ.setdefault("GOGC", SELDOM)
    config.stash[FAILED_WITH_LAB] = False
    config.stash[LOGS] = []
    config.stash[RUN] = TestRun(
        Sources(named=config.getoption("--lab-bin")),
        # Everyday steps are not worth a line among the dots; a build is.
        Plain(_aloud(config), steps=False),
    )
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        # As CI ends a run that takes too long: it must be torn down like one ended by Ctrl-C.
        signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """After the last fixture is gone, whatever the reason: nothing may be left running."""
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
    """A worker of pytest-xdist that has said it is done is killed ten seconds later: it tidies up before."""
    config = session.config
    if config.stash[FAILED_WITH_LAB]:
        config.stash[LOGS] += map(str, config.stash[RUN].logs())
    if (output := getattr(config, "workeroutput", None)) is not None:  # a worker
        output[WORKER_LOGS] = config.stash[LOGS]
        _close(config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker is done: what it would have said at the end, had it a terminal."""
    node.config.stash[LOGS] += getattr(node, "workeroutput", {}).get(WORKER_LOGS, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for logs in config.stash[LOGS]:
        terminalreporter.write_line(f"Logs of the lab the failed tests ran on: {logs}")


@pytest.fixture(scope="session")
def lab(pytestconfig: pytest.Config) -> Lab:
    """The run's shared lab: etcd, kube-apiserver, controller manager, scheduler, KWOK."""
    if pytestconfig.getoption("--kubeconfig"):
        pytest.skip("needs a lab of its own, and --kubeconfig aims this run at another cluster")
    return pytestconfig.stash[RUN].shared()


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Cluster:
    """The cluster tests talk to: the shared lab, or the one --kubeconfig names."""
    foreign: Path | None = pytestconfig.getoption("--kubeconfig")
    if foreign is None:
        shared: Lab = request.getfixturevalue("lab")
        return shared.cluster
    return pytestconfig.stash[RUN].foreign(foreign)


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh namespace whose default service account exists."""
    name = borrowed.create_namespace(cluster, request.node.name)
    yield name
    borrowed.delete_namespace(cluster, name, _namespaced(request))


@pytest.fixture(scope="session")
def crds(cluster: Cluster, pytestconfig: pytest.Config) -> Iterator[dict[str, dict[str, Any]]]:
    """Our kinds, known to the cluster."""
    definitions = _definitions()
    foreign = pytestconfig.getoption("--kubeconfig") is not None
    if foreign and (reason := borrowed.contradiction(cluster, definitions)):
        pytest.skip(reason)
    created = borrowed.install(cluster, definitions)
    yield definitions
    if foreign:
        borrowed.uninstall(cluster, created)


@pytest.fixture
def clean_cluster(
    cluster: Cluster, crds: dict[str, dict[str, Any]], pytestconfig: pytest.Config
) -> Iterator[None]:
    """Afterwards, Nodes and cluster-scoped objects of our kinds are those that were there before."""
    kinds = borrowed.cluster_scoped(crds)
    foreign = pytestconfig.getoption("--kubeconfig") is not None
    if foreign and (reason := borrowed.occupation(cluster, kinds)):
        pytest.skip(reason)
    before = borrowed.snapshot(cluster, kinds)
    yield
    borrowed.restore(cluster, kinds, before, spare_real_nodes=foreign)


@pytest_asyncio.fixture
async def private_lab(pytestconfig: pytest.Config) -> AsyncIterator[PrivateLab]:
    """A factory of labs for fault tests: what dies there disturbs nobody else."""
    if pytestconfig.getoption("--kubeconfig"):
        pytest.skip("breaks a control plane, and --kubeconfig aims this run at one that is not ours")
    run = pytestconfig.stash[RUN]
    raised: list[Lab] = []

    async def factory(
        *,
        parts: tuple[str, ...] = FOUNDATION,
        durable: bool = False,
        pods_run: bool = True,
        extra: Mapping[str, tuple[str, ...]] | None = None,
        scheduler: Mapping[str, Any] | None = None,
    ) -> Lab:
        plan = Plan(
            parts=parts, durable=durable, pods_run=pods_run, extra=extra or {}, scheduler=scheduler or {}
        )
        raised.append(await run.private(plan))
        return raised[-1]

    yield factory
    for lab in raised:
        await run.end(lab, keep_logs=pytestconfig.stash[FAILED_WITH_LAB])


@pytest.fixture(scope="module")
def real_node(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Iterator[str]:
    """The name of this machine as a node of the shared lab, while the tests of one file run.

    No longer: the next file may count nodes, or expect that its pods find no place. A file that needs a
    kubelet of another kind says so in its KUBELET, with settings of a KubeletConfiguration.
    """
    from croupier.lab import realnode  # noqa: PLC0415 (drags in what only a real node needs)

    if reason := realnode.obstacle():
        pytest.skip(reason)
    request.getfixturevalue("lab")
    run = pytestconfig.stash[RUN]
    yield run.join_real_node(getattr(request.module, "KUBELET", None))
    run.part_with_real_node()


def _definitions() -> dict[str, dict[str, Any]]:
    from croupier.api import crds  # noqa: PLC0415 (every pytest run loads this plugin; few need the API)

    return crds.definitions()


def _namespaced(request: pytest.FixtureRequest) -> tuple[str, ...]:
    if "crds" not in request.fixturenames:
        return ()
    return borrowed.namespaced(request.getfixturevalue("crds"))


def _aloud(config: pytest.Config) -> Callable[[str], None]:
    """Write a line in the middle of a run, past pytest's capture."""

    def write(text: str) -> None:
        capture = config.pluginmanager.getplugin("capturemanager")
        reporter = config.pluginmanager.getplugin("terminalreporter")
        if capture is None or reporter is None:
            return
        with capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            reporter.write_line(text)

    return write
