"""The network of a real node: one bridge per lab, with a subnet nobody else on the machine uses.

The bridge carries the node's address: a kubelet refuses loopback, and an
address of its own lets two nodes use the same ports. Pods reach each other and
the node, nothing beyond: no forwarding is switched on and nothing is
masqueraded, so the machine's own network stays as it was. Only pods with a
hostPort leave rules in iptables; they carry the network's name and are removed
by it.
"""

import ipaddress
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from croupier.lab import lock
from croupier.lab.command import output
from croupier.lab.errors import LabError

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
        "isGateway": False,  # we gave the bridge its address; the plugin would also switch on forwarding
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
    """Subnets to try, in order; far from the lab's services in 10.0.0.0/24."""
    yield from ipaddress.IPv4Network("10.244.0.0/16").subnets(new_prefix=24)
    yield from ipaddress.IPv4Network("172.31.0.0/16").subnets(new_prefix=24)


def free_subnet(taken: Iterable[Network]) -> Network:
    """The first candidate that touches none of `taken`."""
    taken = tuple(taken)
    for subnet in candidates():
        if not any(subnet.overlaps(other) for other in taken):
            return subnet
    raise LabError(
        "No subnet is free for the real node's pods: 10.244.0.0/16 and 172.31.0.0/16 are all routed "
        "on this machine; take a lab down that you no longer need (`croupier lab status`)."
    )


def routed(addresses: str, routes: str) -> tuple[Network, ...]:
    """The networks this machine knows, from `ip -json -4 address` and `ip -json -4 route show table all`.

    A default route leads everywhere and takes nothing; neither do routes to this very machine's addresses.
    """
    own = [
        f"{entry['local']}/{entry['prefixlen']}"
        for link in json.loads(addresses or "[]")
        for entry in link.get("addr_info", ())
        if "local" in entry
    ]
    known = [entry["dst"] for entry in json.loads(routes or "[]") if entry.get("dst", "default") != "default"]
    return tuple(Network(text, strict=False) for text in (*own, *known))


async def raise_bridge(node_id: str) -> Network:
    """Make the lab's bridge with a free subnet; the subnet stays taken while the bridge is there."""
    bridge = bridge_name(node_id)
    # Two labs that choose at the same moment would choose the same one.
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
    """Take the bridge and this network's iptables rules away; harmless when there are none."""
    if _is_there(bridge_name(node_id)):
        await output("ip", "link", "delete", bridge_name(node_id))
    # Of two labs that leave at the same moment both would find the shared chains empty, and one remove them.
    async with lock.held(LOCK, on_wait=lambda: None):
        rules = await output("iptables-save", "-t", "nat")
        for command in host_port_removals(rules, network_name(node_id)):
            await output("iptables", "-w", "-t", "nat", *command)


def host_port_removals(rules: str, network: str) -> tuple[tuple[str, ...], ...]:
    """The iptables calls that remove what portmap left for pods of `network`.

    portmap makes one CNI-DN-... chain per pod and a jump to it whose comment names the network. Its three
    shared chains it makes anew whenever it needs them, so they may go when nobody's pods are left in them.
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
    """Split a saved rule as iptables-restore would: quotes hold a comment together."""
    words = re.findall(r'"(?:[^"\\]|\\.)*"|\S+', rule)
    return [re.sub(r"\\(.)", r"\1", word[1:-1]) if word.startswith('"') else word for word in words]


def _is_there(link: str) -> bool:
    return Path("/sys/class/net", link).exists()


def plugin_folders() -> tuple[str, ...]:
    return tuple(folder for folder in PLUGIN_FOLDERS if Path(folder).is_dir())


def missing_plugins() -> tuple[str, ...]:
    """The CNI plugins that are in none of the usual folders."""
    return tuple(
        name for name in PLUGINS if not any(Path(folder, name).exists() for folder in PLUGIN_FOLDERS)
    )
