"""Processes that do not run are problems; a rollout in progress is none, and a missing Croupier is one."""

from datetime import UTC, datetime, timedelta

import pytest

from croupier.core.installation import diagnosis_processes
from croupier.core.installation.diagnosis import InstallationProblems
from croupier.core.installation.diagnosis_processes import PodTimes, Rollout, WorkloadStatus

NOW = datetime(2026, 11, 16, 8, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def summary(complaints: InstallationProblems) -> list[tuple[str, str]]:
    return [(complaint.severity, complaint.where) for complaint in complaints]


def test_missing_or_unready_processes():
    half, none = WorkloadStatus("deployment/a", 2, 1), WorkloadStatus("daemonset/b", 1, 0)
    assert summary(
        diagnosis_processes.processes([half, none, WorkloadStatus("deployment/c", 1, 1)], "ns")
    ) == [
        ("warning", "deployment/a"),
        ("error", "daemonset/b"),
    ]
    assert summary(diagnosis_processes.processes([], "ns")) == [("error", "namespace ns")]


def test_a_deployment_scaled_to_zero_has_a_remedy():
    nowhere = WorkloadStatus("daemonset/croupier-node", 0, 0)
    (complaint,) = diagnosis_processes.processes([WorkloadStatus("deployment/webhook", 0, 0), nowhere], "ns")
    assert (complaint.severity, complaint.where) == ("error", "deployment/webhook")
    assert complaint.remedy == "kubectl -n ns scale deployment/webhook --replicas=1"


ROLLOUTS = {
    "a first installation": (Rollout(1, wanted=2), True),
    "no controller has looked at it": (Rollout(1, wanted=2, age=11 * MINUTE), False),
    "a change that was not observed yet": (Rollout(3, 2, "NewReplicaSetAvailable", 2, 2), True),
    "a new ReplicaSet": (Rollout(3, 3, "NewReplicaSetCreated", 0, 2), True),
    "the second pod is replaced": (Rollout(3, 3, "ReplicaSetUpdated", 2, 2), True),
    "no condition, one of two pods is updated": (Rollout(3, 3, "", 1, 2), True),
    "complete": (Rollout(3, 3, "NewReplicaSetAvailable", 2, 2), False),
    "complete, without a condition": (Rollout(3, 3, "", 2, 2), False),
    "stuck": (Rollout(3, 3, "ProgressDeadlineExceeded", 1, 2), False),
    "pods are refused": (Rollout(3, 3, "ReplicaSetCreateError", 0, 2), False),
}


@pytest.mark.parametrize(("rollout", "expected"), ROLLOUTS.values(), ids=ROLLOUTS)
def test_a_rollout_in_progress(rollout, expected):
    assert diagnosis_processes.in_progress(rollout) is expected


STARTING = {
    "created now": (PodTimes(NOW - MINUTE), 1),
    "too late": (PodTimes(NOW - 11 * MINUTE), 0),
    "being replaced": (PodTimes(NOW - 99 * MINUTE, NOW - MINUTE), 1),
    "never ends": (PodTimes(NOW - 99 * MINUTE, NOW - 11 * MINUTE), 0),
}


@pytest.mark.parametrize(("pod", "expected"), STARTING.values(), ids=STARTING)
def test_pods_of_a_daemon_set_that_start(pod, expected):
    assert diagnosis_processes.starting([pod], NOW) == expected


DURING_A_ROLLOUT = {
    "one pod is replaced": (WorkloadStatus("daemonset/a", 3, 2, starting=1), []),
    "one more is missing": (WorkloadStatus("daemonset/a", 3, 1, starting=1), [("warning", "daemonset/a")]),
    "none is ready yet": (WorkloadStatus("deployment/a", 1, 0, starting=1), [("note", "deployment/a")]),
    "none is ready": (WorkloadStatus("deployment/a", 1, 0), [("error", "deployment/a")]),
}


@pytest.mark.parametrize(("workload", "expected"), DURING_A_ROLLOUT.values(), ids=DURING_A_ROLLOUT)
def test_a_rollout_is_no_problem(workload, expected):
    assert summary(diagnosis_processes.processes([workload], "ns")) == expected


def test_where_croupier_is_not_installed_there_is_one_command():
    (nowhere,) = diagnosis_processes.not_installed("gpu", ())
    (elsewhere,) = diagnosis_processes.not_installed("gpu", ["b", "a"])

    assert nowhere.what == "Croupier is not installed"
    assert nowhere.remedy.endswith(
        "helm upgrade --install croupier charts/croupier --namespace gpu --create-namespace"
    )
    assert elsewhere.what == "Croupier is not installed in this namespace, but in a, b"
    assert elsewhere.remedy == "croupier doctor --namespace a"
