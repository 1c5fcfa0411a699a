"""Small kinds and builders for the tests of this package."""

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from croupier.kube.client.resource import Raw, Resource


class Metadata(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = field(default_factory=dict)


class Port(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    container_port: int
    name: str = ""


class Container(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    name: str
    image: str = ""
    ports: Annotated[
        list[Port], Meta(extra_json_schema={"x-kubernetes-list-map-keys": ["containerPort"]})
    ] = field(default_factory=list)


class Spec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    node_name: str | None = None
    containers: tuple[Container, ...] = ()
    node_selector: dict[str, str] = field(default_factory=dict)


class Pod(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    metadata: Metadata
    spec: Spec = Spec()


class ConfigMap(Struct, frozen=True, kw_only=True):
    metadata: Metadata
    data: dict[str, str] = field(default_factory=dict)


PODS = Resource("", "v1", "pods", "Pod", True, Pod)
NODES: Resource[Raw] = Resource("", "v1", "nodes", "Node", False, dict)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True, ConfigMap)


def pod(name: str = "web", *, namespace: str = "shop", version: str = "1", node: str | None = None) -> Pod:
    meta = Metadata(name=name, namespace=namespace, uid=f"uid-{name}", resource_version=version)
    return Pod(metadata=meta, spec=Spec(node_name=node))


def raw_pod(name: str = "web", **spec: Any) -> Raw:
    containers = [
        {"name": "main", "image": "app:1", "tty": True, "ports": [{"containerPort": 80, "protocol": "TCP"}]}
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": "u", "resourceVersion": "1", "generation": 3},
        "spec": {"containers": containers, "hostNetwork": True, **spec},
        "status": {"phase": "Running"},
    }


def config_map(name: str = "settings", **data: str) -> Raw:
    return {"metadata": {"name": name}, "data": data}
