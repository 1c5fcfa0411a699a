"""Many schedulers with real pods: every Binding has a hold, and deleted pods leave nothing behind."""

import asyncio
import time
from collections import Counter

from croupier.kube.client import api_client, config
from tests.polling import until
from tests.proof import history
from tests.proof import pod_load as pod_module
from tests.proof import replica as replica_module
from tests.proof.flow_env import FlowEnv
from tests.proof.processes import child_processes
from tests.proof.test_storm import PATIENCE, contents


async def test_pods_bound_by_many_schedulers(private_lab, size, tell, tmp_path):
    lab = await private_lab(crds=True)
    began = time.monotonic()
    async with (
        api_client.connect(config.load(lab.kubeconfig)) as api,
        history.record(api, pods=True) as recording,
        child_processes(tmp_path) as start,
    ):
        places = [FlowEnv(api, f"world-{number}") for number in range(size.nodes)]
        for world in places:
            await world.lay(size.cards)
        nodes = ",".join(world.node for world in places)
        controllers = await start(
            replica_module.__name__, "controllers", f"--kubeconfig={lab.kubeconfig}", "--name=c"
        )
        await controllers.receive()
        await until(lambda: len(recording.sheets()) == size.nodes, "all ledgers to be opened")
        before = contents(recording.sheets())

        dealers = []
        for number in range(size.schedulers):
            known = [f"--kubeconfig={lab.kubeconfig}", f"--name=d{number}", f"--nodes={nodes}"]
            known += [f"--namespace={places[0].namespace}", f"--pods={size.pods // size.schedulers}"]
            dealers.append(await start(pod_module.__name__, f"d{number}", *known))
        assert [await dealer.receive() for dealer in dealers] == ["ready"] * size.schedulers
        for dealer in dealers:
            dealer.tell("go")
        counts = await asyncio.gather(*(dealer.receive(PATIENCE) for dealer in dealers))
        total = sum(map(Counter, counts), Counter[str]())
        for dealer in dealers:
            dealer.tell("end")
        assert [await dealer.receive(PATIENCE) for dealer in dealers] == ["closed"] * size.schedulers

        await until(lambda: contents(recording.sheets()) == before, "everything to be free", within=60)
        await recording.complete()
        tell(
            f"Pods, {size.name}: {size.pods} by {size.schedulers} schedulers on {size.nodes} nodes in "
            f"{time.monotonic() - began:.0f} s: {dict(total)}; {recording.revisions} revisions checked"
        )
    assert recording.faults() == []
    assert total["bound"] + total["waits"] == size.pods // size.schedulers * size.schedulers
    assert all(count.get("bound", 0) > 0 for count in counts), "every scheduler placed a pod"
