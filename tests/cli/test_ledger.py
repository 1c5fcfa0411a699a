"""`croupier ledger`: free capacity of every node, and the cards of one node."""

from tests.cli import env
from tests.cli.env import croupier


async def test_lists_all_nodes_and_shows_one(api, crds, clean_cluster, cluster):
    await env.node(api, "node-1")
    await env.node(api, "other-2", "T4:4")
    held = {"team/b/u2": "2100-01-01T00:00:00Z"}
    await env.ledger(api, "node-1", {"team/a/u1": 60, "team/b/u2": 20}, {}, held=held)

    def ask(*args: str) -> env.CommandResult:
        return croupier("ledger", *args, kubeconfig=cluster.kubeconfig)

    overview = [line.split() for line in ask().out.splitlines()]
    assert overview == [
        ["NODE", "CARDS", "PERCENT", "SLOTS", "SLICES", "HOLDERS", "HELD", "WITHHELD", "FINDINGS"],
        ["node-1", "1/2", "120/200", "-", "-", "2", "1", "-", "-"],
        ["other-2", "4/4", "400/400", "-", "-", "0", "-", "-", "-"],
    ]

    details = ask("node-1").out
    assert "card 0  ████████████████░░░░  20 % free; team/a 60 %, team/b 20 %" in details
    assert "team/b/u2: Held until 2100-01-01 00:00:00 UTC" in details

    first, second = ask("-o", "json").data
    assert (first["percent"], first["recorded"]) == ({"free": 120, "total": 200}, True)
    assert (second["cards"], second["recorded"]) == ({"free": 4, "total": 4}, False)
    device = ask("node-1", "-o", "json").data["devices"][0]
    assert (device["card"], device["free"], len(device["holders"])) == ("node-1-gpu-0", 20, 2)

    missing = ask("node-9")
    assert (missing.code, missing.err) == (
        1,
        "croupier: the ledger has no node node-9: there is no such node.\n",
    )
