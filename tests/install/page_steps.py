"""A step of the scenario: the page of the chart, whose two replicas share only the key of sessions."""

from base64 import b64decode

import aiohttp

from tests.install import rendering
from tests.install.chart_env import named
from tests.install.scenario_env import ScenarioEnv

PAGE = "croupier-ui"
HEADERS = {"X-Croupier": "1", "Sec-Fetch-Site": "same-origin"}


async def use_page(env: ScenarioEnv) -> None:
    """Sign in at one replica with a token without rights, and read the cards at the other."""
    chart = env.chart
    secret = rendering.named(chart.objects, "Secret", "croupier-ui-session")
    (chart.folder / "session-key").write_bytes(b64decode(secret["data"]["key"]))
    assert chart.replicas(PAGE) == 2
    for replica in (1, 2):
        chart.start(PAGE, f"--session-key={chart.folder}/session-key", replica=replica)
    await chart.ready([named(PAGE, replica) for replica in (1, 2)])
    token = chart.lab.kubectl("create", "token", "default", "-n", "default").stdout.strip()
    first, second = (f"http://127.0.0.1:{chart.ports[named(PAGE, replica)]}" for replica in (1, 2))
    async with aiohttp.ClientSession(headers=HEADERS) as browser:
        async with browser.post(f"{first}/login", json={"token": token}) as signed_in:
            assert signed_in.status == 200, await signed_in.text()
            cookie = "; ".join(f"{name}={value.value}" for name, value in signed_in.cookies.items())
        async with browser.get(f"{second}/api/v1/me", headers={"Cookie": cookie}) as me:
            chart.results["viewer"] = await me.json()
        async with browser.get(f"{second}/api/v1/snapshot?part=names", headers={"Cookie": cookie}) as rows:
            chart.results["names that a viewer without rights gets"] = (await rows.json())["tables"]
