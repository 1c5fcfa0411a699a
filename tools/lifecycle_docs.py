"""Renders the lifecycle table for docs/cards.md, as a Markdown table and as a Mermaid diagram."""

from collections.abc import Iterator

from croupier.core.cards.lifecycle import STATES, TABLE, Transition


def table() -> str:
    """One line for each row, in the order of evaluation."""
    lines = ["| from | to | when | by | Event |", "|---|---|---|---|---|"]
    lines += [
        f"| {', '.join(row.starts)} | {_goes(row)} | {row.rule.words} | {row.owner} | {_event(row)} |"
        for row in TABLE
    ]
    return "\n".join(lines)


def diagram() -> str:
    """The phases with their states, and one edge for each change with the reasons of its Events."""
    lines = ["stateDiagram-v2", "    [*] --> Discovered"]
    lines += [f"    {phase}: {phase} ({state})" for phase, state in STATES.items()]
    lines += [
        f"    {start} --> {end}: {' or '.join(reasons)}" for (start, end), reasons in _changes().items()
    ]
    return "\n".join(lines)


def _changes() -> dict[tuple[str, str], list[str]]:
    changes: dict[tuple[str, str], list[str]] = {}
    for start, end, reason in _lines():
        reasons = changes.setdefault((start, end), [])
        if reason not in reasons:
            reasons.append(reason)
    return changes


def _lines() -> Iterator[tuple[str, str, str]]:
    return ((start, row.end, row.reason) for row in TABLE if row.end is not None for start in row.starts)


def _goes(row: Transition) -> str:
    into = {"stays": "", "joins": ", into the pool", "leaves": ", out of the pool"}[row.pool]
    return f"{row.end or '(stays)'}{into}"


def _event(row: Transition) -> str:
    return f"{row.reason} (Warning)" if row.is_warning else row.reason
