"""Accessibility rules of axe-core, run in a page."""

from typing import Any, Final

from axe_playwright_python.base import AXE_SCRIPT  # type: ignore[import-untyped]  # it carries no types
from playwright.async_api import Page

TAGS: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
CONTRAST: Final = ("color-contrast",)

RUN: Final = """
async (only) => {
  const found = await axe.run(document, { runOnly: only, resultTypes: ['violations'] })
  const line = (rule, node) => `${rule.id}: ${node.target} ${node.html}`
  return found.violations.flatMap((rule) => rule.nodes.map((node) => line(rule, node)))
}
"""


async def violations(page: Page, *, rules: tuple[str, ...] = ()) -> list[str]:
    """What axe finds; with `rules` only these, otherwise all of WCAG 2.2 AA and the best practices."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE_SCRIPT)
    only: dict[str, Any] = {"type": "rule", "values": list(rules)} if rules else _tags()
    found: list[str] = await page.evaluate(RUN, only)
    return [text[:300] for text in found]


def _tags() -> dict[str, Any]:
    return {"type": "tag", "values": list(TAGS)}
