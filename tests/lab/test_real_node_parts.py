"""Network, names and configuration of a real node, without a machine."""

import ipaddress
import json
from pathlib import Path

import pytest
import yaml

from croupier_lab import cgroup, cni, containerd, kubelet
from croupier_lab.certificates import KeyPair
from croupier_lab.errors import LabError
from croupier_lab.real_node_paths import RealNodePaths


def net(text: str) -> ipaddress.IPv4Network:
    return ipaddress.IPv4Network(text)


FREE_SUBNETS = {
    "an empty machine": ([], "10.244.0.0/24"),
    "another lab is running": (["10.244.0.0/24"], "10.244.1.0/24"),
    "an address inside a subnet": (["10.244.0.77/32", "10.244.2.0/24"], "10.244.1.0/24"),
    "the default range is in use": (["10.244.0.0/16"], "172.31.0.0/24"),
    "all of 10.0.0.0/8 is in use": (["10.0.0.0/8", "172.31.0.0/23"], "172.31.2.0/24"),
}


@pytest.mark.parametrize(("taken", "chosen"), FREE_SUBNETS.values(), ids=FREE_SUBNETS)
def test_the_first_free_subnet_is_chosen(taken, chosen):
    assert cni.free_subnet(map(net, taken)) == net(chosen)


def test_no_free_subnet_is_reported():
    with pytest.raises(LabError, match="No subnet is free"):
        cni.free_subnet([net("10.0.0.0/8"), net("172.16.0.0/12")])


def test_networks_in_use_come_from_addresses_and_routes_but_not_the_default_route():
    addresses = [
        {"ifname": "eth0", "addr_info": [{"local": "192.0.2.2", "prefixlen": 24}]},
        {"ifname": "down"},
    ]
    routes = [{"dst": "default"}, {"dst": "10.244.3.0/24"}, {"dst": "192.0.2.2"}]

    known = cni.routed(json.dumps(addresses), json.dumps(routes))

    assert known == (net("192.0.2.0/24"), net("10.244.3.0/24"), net("192.0.2.2/32"))


def test_the_bridge_is_the_gateway_and_the_machine_forwards_nothing():
    configuration = json.loads(cni.configuration("12345678", net("10.244.1.0/24")))
    bridge = configuration["plugins"][0]

    assert bridge["bridge"] == "crp12345678"
    assert bridge["ipam"]["ranges"] == [[{"subnet": "10.244.1.0/24", "gateway": "10.244.1.1"}]]
    assert (bridge["isGateway"], bridge["ipMasq"]) == (False, False)


PORTMAP = """\
*nat
:PREROUTING ACCEPT [0:0]
:CNI-DN-aaa - [0:0]
{more_chains}:CNI-HOSTPORT-DNAT - [0:0]
:CNI-HOSTPORT-MASQ - [0:0]
:CNI-HOSTPORT-SETMARK - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ
-A POSTROUTING -s 192.0.2.0/24 -j MASQUERADE
-A CNI-DN-aaa -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.0.2:80
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \\"mine\\" id: \\"1\\"" -j CNI-DN-aaa
{more_jumps}-A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE
COMMIT
"""
NEIGHBOUR = (
    '-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \\"other\\" id: \\"2\\"" -j CNI-DN-bbb\n'
)
COMMENT = 'dnat name: "mine" id: "1"'
OUR_JUMP = ("-D", "CNI-HOSTPORT-DNAT", "-p", "tcp", "-m", "comment", "--comment", COMMENT, "-j", "CNI-DN-aaa")


def test_only_rules_of_this_network_are_removed():
    rules = PORTMAP.format(more_chains=":CNI-DN-bbb - [0:0]\n", more_jumps=NEIGHBOUR)

    assert cni.host_port_removals(rules, "mine") == (OUR_JUMP, ("-F", "CNI-DN-aaa"), ("-X", "CNI-DN-aaa"))


def test_the_shared_chains_are_removed_with_the_last_rule():
    removals = cni.host_port_removals(PORTMAP.format(more_chains="", more_jumps=""), "mine")

    deleted = [removal[1] for removal in removals if removal[0] == "-X"]
    assert deleted == ["CNI-DN-aaa", "CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-MASQ", "CNI-HOSTPORT-SETMARK"]
    assert [removal[1] for removal in removals if removal[0] == "-D"] == [
        "CNI-HOSTPORT-DNAT",
        "PREROUTING",
        "POSTROUTING",
    ]


def test_without_host_ports_nothing_is_removed():
    assert cni.host_port_removals("*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n", "mine") == ()


def test_names_follow_from_the_folder_and_are_short_enough_for_sockets_and_bridges():
    deep = RealNodePaths(Path("/" + "very-long-name/" * 20))

    assert deep.id == RealNodePaths(deep.lab).id
    assert deep.id != RealNodePaths(Path("/another")).id
    assert len(cni.bridge_name(deep.id)) <= 15
    assert len(str(deep.plugins / "device-plugins" / f"{'x' * 40}.sock")) <= 107


def test_kubelet_configuration():
    settings = kubelet.KubeletOptions(
        "n", "10.244.0.1", "croupier-1", Path("/ca"), KeyPair(Path("/crt"), Path("/key"))
    )
    configuration = yaml.safe_load(kubelet.configuration(settings))

    assert configuration["healthzBindAddress"] == configuration["address"] == "10.244.0.1"
    assert configuration["cgroupRoot"] == "/croupier-1"
    assert configuration["makeIPTablesUtilChains"] is False
    assert configuration["authentication"]["anonymous"] == {"enabled": False}
    assert configuration["imageGCHighThresholdPercent"] == 100


def test_pods_use_the_nameservers_of_the_machine():
    conf = "# by hand\nsearch example.org\nnameserver 192.0.2.1\nnameserver\n" + "nameserver 192.0.2.2\n" * 3

    assert kubelet.nameservers(conf) == ("192.0.2.1", "192.0.2.2", "192.0.2.2")
    assert kubelet.nameservers("") == ()


def test_kubelet_configuration_overrides():
    pair = KeyPair(Path("/crt"), Path("/key"))
    extra = {"cpuManagerPolicy": "static", "cgroupRoot": "/mine"}
    settings = kubelet.KubeletOptions("n", "10.244.0.1", "croupier-1", Path("/ca"), pair, extra=extra)
    configuration = yaml.safe_load(kubelet.configuration(settings))

    assert (configuration["cpuManagerPolicy"], configuration["cgroupRoot"]) == ("static", "/mine")
    assert configuration["port"] == kubelet.PORT


def test_containerd_configuration_quotes_paths():
    text = containerd.configuration(
        root=Path('/a "b"'), network=Path("/net"), shim=Path("/shim"), plugins=("/usr/lib/cni",)
    )

    import tomllib

    configuration = tomllib.loads(text)
    assert configuration["root"] == '/a "b"'
    assert configuration["plugins"]["io.containerd.cri.v1.runtime"]["cdi_spec_dirs"] == [
        "/etc/cdi",
        "/var/run/cdi",
    ]


def hierarchy(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").touch()
    return folder


def test_control_groups_of_both_layouts_are_found(tmp_path):
    separate = [hierarchy(tmp_path / "v1" / name) for name in ("cpu", "memory")]
    (tmp_path / "v1" / "cpuacct").symlink_to("cpu")
    single = hierarchy(tmp_path / "v2")
    (single / "init.scope").mkdir()

    assert cgroup.hierarchies(tmp_path / "v1") == tuple(separate)
    assert cgroup.hierarchies(single) == (single,)


def test_the_single_hierarchy_passes_on_the_controllers_it_has(tmp_path):
    mount = hierarchy(tmp_path / "v2")
    (mount / "cgroup.controllers").write_text("cpu pids rdma\n")
    (mount / "cgroup.subtree_control").write_text("pids\n")

    cgroup.create("croupier-1", mount)

    assert (mount / "cgroup.subtree_control").read_text() == "+cpu"
    assert (mount / "croupier-1").is_dir()
