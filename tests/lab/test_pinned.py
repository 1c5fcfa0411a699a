"""A built binary is reused as long as its inputs do not change."""

import re
from dataclasses import replace

from croupier_lab import pinned, versions


def test_the_digest_follows_flags_and_machine():
    module = pinned.KUBERNETES
    digests = {
        pinned.digest(module, machine="linux/x86_64"),
        pinned.digest(module, machine="linux/aarch64"),
        pinned.digest(replace(module, flags=("-race",)), machine="linux/x86_64"),
        pinned.digest(pinned.CONTAINERD, machine="linux/x86_64"),
    }

    assert len(digests) == 4
    assert pinned.digest(module, machine="linux/x86_64") in digests


def test_the_digest_follows_the_versions_and_the_checksums(tmp_path, monkeypatch):
    def digest_with(*, mod: str, checksums: str) -> str:
        folder = tmp_path / pinned.KUBERNETES.name
        folder.mkdir(exist_ok=True)
        (folder / "go.mod").write_text(mod)
        (folder / "go.sum").write_text(checksums)
        return pinned.digest(pinned.KUBERNETES)

    monkeypatch.setattr(pinned, "MODULES", tmp_path)
    first = digest_with(mod="a", checksums="b")

    assert digest_with(mod="a2", checksums="b") != first
    assert digest_with(mod="a", checksums="b2") != first
    assert digest_with(mod="a", checksums="b") == first


def test_go_mod_lists_every_program_as_a_tool():
    for module in pinned.MODULES_IN_ORDER:
        text = (module.folder / "go.mod").read_text()
        tools = re.search(r"^tool (?:\((.*?)\)|(.*?)$)", text, re.DOTALL | re.MULTILINE)
        assert tools is not None
        assert set((tools[1] or tools[2]).split()) == set(module.programs.values())


def test_every_program_has_a_version_rule():
    assert (
        set(versions.RULES)
        == set(pinned.MODULE_OF)
        == {
            *pinned.CONTROL_PLANE_PROGRAMS,
            *pinned.REAL_NODE_PROGRAMS,
            *pinned.HELM_PROGRAMS,
        }
    )


def test_the_pinned_version_is_the_one_the_rules_ask_for():
    pinned_version = versions.read(pinned.KUBERNETES.version)

    assert versions.objection("kube-apiserver", pinned_version) is None
    assert f"gitVersion={pinned.KUBERNETES.version} " in " ".join(pinned.KUBERNETES.flags)
    assert (
        f"k8s.io/kubernetes {pinned.KUBERNETES.version}" in (pinned.KUBERNETES.folder / "go.mod").read_text()
    )
