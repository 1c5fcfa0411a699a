"""The Kubernetes resources that Croupier uses: group, version, plural, kind and type of each."""

from typing import Final

from croupier.api.core_v1 import (
    ConfigMap,
    Event,
    Lease,
    Namespace,
    Node,
    Pod,
    Secret,
    ServiceAccount,
    WebhookConfiguration,
)
from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool
from croupier.api.mbcas import PodAllocation
from croupier.api.mps import NodeReservation, Reservation
from croupier.api.mps.ledger_revision import LedgerRevision
from croupier.kube.client.resource import Raw, Resource

PODS: Final = Resource("", "v1", "pods", "Pod", True, Pod)
NODES: Final = Resource("", "v1", "nodes", "Node", False, Node)
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", False, Namespace)
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", True, ConfigMap)
SECRETS: Final = Resource("", "v1", "secrets", "Secret", True, Secret)
MUTATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    False,
    WebhookConfiguration,
)
VALIDATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    False,
    WebhookConfiguration,
)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease", True, Lease)
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount", True, ServiceAccount)
DEPLOYMENTS: Final[Resource[Raw]] = Resource("apps", "v1", "deployments", "Deployment", True, dict)
DAEMON_SETS: Final[Resource[Raw]] = Resource("apps", "v1", "daemonsets", "DaemonSet", True, dict)
CUSTOM_RESOURCE_DEFINITIONS: Final[Resource[Raw]] = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, dict
)
ADMISSION_POLICIES: Final[Resource[Raw]] = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    False,
    dict,
)
ADMISSION_POLICY_BINDINGS: Final[Resource[Raw]] = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    False,
    dict,
)
MUTATING_POLICIES: Final[Resource[Raw]] = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy", False, dict
)
MUTATING_POLICY_BINDINGS: Final[Resource[Raw]] = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingadmissionpolicybindings",
    "MutatingAdmissionPolicyBinding",
    False,
    dict,
)
SUBJECT_ACCESS_REVIEWS: Final[Resource[Raw]] = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False, dict
)
SELF_SUBJECT_ACCESS_REVIEWS: Final[Resource[Raw]] = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False, dict
)
SELF_SUBJECT_REVIEWS: Final[Resource[Raw]] = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False, dict
)
MODULE_CONFIGS: Final[Resource[Raw]] = Resource(
    "deckhouse.io", "v1alpha1", "moduleconfigs", "ModuleConfig", False, dict
)
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event", True, Event)

RESERVATIONS: Final = Resource("mps.nvidia.com", "v1", "reservations", "Reservation", True, Reservation)
NODE_RESERVATIONS: Final = Resource(
    "mps.nvidia.com", "v1", "nodereservations", "NodeReservation", False, NodeReservation
)
LEDGER_REVISIONS: Final = Resource(
    "mps.nvidia.com", "v1", "nodereservations", "NodeReservation", False, LedgerRevision
)
"""NodeReservations, with the time of their last write."""
GPU_DEVICES: Final = Resource("gpu.deckhouse.io", "v1alpha1", "gpudevices", "GPUDevice", False, GPUDevice)
GPU_NODE_INVENTORIES: Final = Resource(
    "gpu.deckhouse.io", "v1alpha1", "gpunodeinventories", "GPUNodeInventory", False, GPUNodeInventory
)
GPU_POOLS: Final = Resource("gpu.deckhouse.io", "v1alpha1", "gpupools", "GPUPool", False, GPUPool)
POD_ALLOCATIONS: Final = Resource(
    "allocation.mbcas.io", "v1alpha1", "podallocations", "PodAllocation", True, PodAllocation
)
