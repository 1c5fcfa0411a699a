"""The generated kubelet messages match the .proto files, and both modules can be imported together."""

import shutil

from croupier.node.proto import device_plugin_pb2, pod_resources_pb2
from tools import kubelet_messages


def test_the_modules_are_as_generated(capsys):
    assert kubelet_messages.main(["--check"]) == 0
    assert capsys.readouterr().err == ""


def test_stale_modules_are_listed_and_written_again(tmp_path):
    folder = tmp_path / "croupier/node/proto"
    shutil.copytree(kubelet_messages.FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "pod_resources_pb2.py").write_text("# old")
    (folder / "device_plugin_pb2.pyi").unlink()
    (folder / "gone_pb2.py").write_text("# of no .proto")

    assert kubelet_messages.stale_modules(folder) == [
        "device_plugin_pb2.pyi is missing",
        "pod_resources_pb2.py is stale",
        "gone_pb2.py has no .proto file",
    ]
    kubelet_messages.write(folder)
    assert kubelet_messages.stale_modules(folder) == []


def test_the_packages_are_the_kubelets():
    """Package names are part of the calls. The file names differ, because the kubelet's are all equal."""
    assert device_plugin_pb2.DESCRIPTOR.package == "v1beta1"
    assert pod_resources_pb2.DESCRIPTOR.package == "v1"
    assert device_plugin_pb2.DESCRIPTOR.name != pod_resources_pb2.DESCRIPTOR.name
