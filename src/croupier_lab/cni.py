"""The network of a real node: one bridge per lab, with a free subnet.

The bridge has the address of the node: a kubelet refuses loopback, and separate addresses let two nodes use
the same ports. Pods reach each other and the node only: there is no forwarding and no masquerading, so the
network of the machine does not change. Only pods with a hostPort create iptables rules; these contain the
name of the network and are removed by it.
"""

import ipaddress
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from croupier_lab import lock
from croupier_lab.command import output
from croupier_lab.errors import LabError

PLUGIN_FOLDERS = ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni")
PLUGINS = ("bridge", "host-local", "portmap", "loopback")
JUMPS = "CNI-HOSTPORT-DNAT"
MASQUERADE = "CNI-HOSTPORT-MASQ"
SHARED_CHAINS = (JUMPS, MASQUERADE, "CNI-HOSTPORT-SETMARK")
LOCK = Path("/run/croupier-network.lock")

Network = ipaddress.IPv4Network


def bridge_name(node_id: str) -> str:
    return f"crp{node_id}"


def network_name(node_id: str) -> str:
    return f"croupier-{node_id}"


def configuration(node_id: str, subnet: Network) -> str:
    """The CNI configuration of the node; the bridge's own address is the pods' gateway."""
    bridge = {
        "type": "bridge",
        "bridge": bridge_name(node_id),
        "isGateway": False,  # the bridge already has its address; the plugin would also enable forwarding
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": str(subnet), "gateway": str(gateway(subnet))}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps(
        {"cniVersion": "1.0.0", "name": network_name(node_id), "plugins": [bridge, portmap]}, indent=2
    )


def gateway(subnet: Network) -> ipaddress.IPv4Address:
    return subnet[1]


def candidates() -> Iterator[Network]:
    """Subnets to try, in order; outside of the service range 10.0.0.0/24."""
    yield from ipaddress.IPv4Network("10.244.0.0/16").subnets(new_prefix=24)
    yield from ipaddress.IPv4Network("172.31.0.0/16").subnets(new_prefix=24)


def free_subnet(taken: Iterable[Network]) -> Network:
    """The first candidate that overlaps none of `taken`."""
    taken = tuple(taken)
    for subnet in candidates():
        if not any(subnet.overlaps(other) for other in taken):
            return subnet
    raise LabError(
        "No subnet is free for the real node's pods: 10.244.0.0/16 and 172.31.0.0/16 are all routed "
        "on this machine; stop a lab that you no longer need (`croupier lab list`)."
    )


def routed(addresses: str, routes: str) -> tuple[Network, ...]:
    """Networks in use, from `ip -json -4 address` and `ip -json -4 route show table all`.

    Default routes are ignored.
    """
    own = [
        f"{entry['local']}/{entry['prefixlen']}"
        for link in json.loads(addresses or "[]")
        for entry in link.get("addr_info", ())
        if "local" in entry
    ]
    known = [entry["dst"] for entry in json.loads(routes or "[]") if entry.get("dst", "default") != "default"]
    return tuple(Network(text, strict=False) for text in (*own, *known))


async def create_bridge(node_id: str) -> Network:
    """Create the lab's bridge with a free subnet; the subnet is in use as long as the bridge exists."""
    bridge = bridge_name(node_id)
    # Without the lock two labs could choose the same subnet.
    async with lock.held(LOCK, on_wait=lambda: None):
        taken = routed(
            await output("ip", "-json", "-4", "address"),
            await output("ip", "-json", "-4", "route", "show", "table", "all"),
        )
        subnet = free_subnet(taken)
        await output("ip", "link", "add", bridge, "type", "bridge")
        await output("ip", "address", "add", f"{gateway(subnet)}/{subnet.prefixlen}", "dev", bridge)
    await output("ip", "link", "set", bridge, "up")
    return subnet


async def remove_bridge(node_id: str) -> None:
    """Remove the bridge and the iptables rules of this network; does nothing if there are none."""
    if _is_there(bridge_name(node_id)):
        await output("ip", "link", "delete", bridge_name(node_id))
    # Without the lock two labs could both try to remove the shared chains.
    async with lock.held(LOCK, on_wait=lambda: None):
        rules = await output("iptables-save", "-t", "nat")
        for command in host_port_removals(rules, network_name(node_id)):
            await output("iptables", "-w", "-t", "nat", *command)


def host_port_removals(rules: str, network: str) -> tuple[tuple[str, ...], ...]:
    """Arguments of the iptables calls that remove the rules of portmap for pods of `network`.

    portmap creates one CNI-DN-... chain per pod, and a jump to it whose comment contains the network. It
    recreates its three shared chains on demand, so they are removed when they have no other jumps.
    """
    saved = [_words(line) for line in rules.splitlines()]
    jumps = [rule for rule in saved if rule[:2] == ["-A", JUMPS]]
    ours = [rule for rule in jumps if any(f'dnat name: "{network}"' in word for word in rule)]
    removals = [("-D", *rule[1:]) for rule in ours]
    gone = [rule[-1] for rule in ours]
    if len(ours) == len(jumps):
        shared = [f":{chain}" for chain in SHARED_CHAINS]
        gone += [rule[0][1:] for rule in saved if rule and rule[0] in shared]
        entries = [rule for rule in saved if rule[:1] == ["-A"] and rule[-1] in (JUMPS, MASQUERADE)]
        removals += [("-D", *rule[1:]) for rule in entries]
    removals += [("-F", chain) for chain in gone]
    removals += [("-X", chain) for chain in gone]
    return tuple(removals)


def _words(rule: str) -> list[str]:
    """Split a saved rule like iptables-restore, respecting quotes."""
    words = re.findall(r'"(?:[^"\\]|\\.)*"|\S+', rule)
    return [re.sub(r"\\(.)", r"\1", word[1:-1]) if word.startswith('"') else word for word in words]


def _is_there(link: str) -> bool:
    return Path("/sys/class/net", link).exists()


def plugin_folders() -> tuple[str, ...]:
    return tuple(folder for folder in PLUGIN_FOLDERS if Path(folder).is_dir())


def missing_plugins() -> tuple[str, ...]:
    """CNI plugins that are not installed."""
    return tuple(
        name for name in PLUGINS if not any(Path(folder, name).exists() for folder in PLUGIN_FOLDERS)
    )
