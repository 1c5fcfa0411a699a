"""Output of `croupier fallback`: a diff as text, or JSON and YAML."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import typer

from croupier.cli import rendering, tables, terminal

if TYPE_CHECKING:
    from croupier.core.availability import Availability
    from croupier.core.fallbacks.fallback import FallbackDecision
    from croupier.core.fallbacks.policy import FallbackPolicy
    from croupier.core.jsonpatch import Operation
    from croupier.core.pods.effective_requests import Amounts
    from croupier.core.pods.podspec_view import PodSpecView

PreviewState: TypeAlias = Literal["Unchanged", "Mended", "Rewritten", "Waits", "Refused"]

EXIT_CODES: Final[dict[PreviewState, int]] = {
    "Unchanged": 0,
    "Mended": 3,
    "Rewritten": 3,
    "Waits": 4,
    "Refused": 4,
}
MESSAGES: Final[dict[PreviewState, str]] = {
    "Unchanged": "would be admitted as it is",
    "Mended": "would get missing limits",
    "Rewritten": "would be changed",
    "Waits": "would be admitted and stay pending",
    "Refused": "would be rejected",
}


@dataclass(frozen=True, slots=True)
class FallbackPreview:
    pod: dict[str, Any]
    spec: "PodSpecView"
    decision: "FallbackDecision"
    index: "Availability"
    policy: "FallbackPolicy"

    @property
    def state(self) -> PreviewState:
        from croupier.core.fallbacks.fallback import FallbackChanges, FallbackDenied

        if isinstance(self.decision, FallbackDenied):
            return "Refused"
        if isinstance(self.decision, FallbackChanges) and self.decision.rewrites:
            return "Rewritten"
        if self.decision.warnings:
            return "Waits"
        return "Mended" if self.operations else "Unchanged"

    @property
    def operations(self) -> "tuple[Operation, ...]":
        from croupier.core.fallbacks.fallback import FallbackChanges

        return self.decision.operations if isinstance(self.decision, FallbackChanges) else ()

    @property
    def sentences(self) -> tuple[str, ...]:
        from croupier.core.fallbacks.fallback import FallbackDenied

        return (
            (self.decision.sentence,) if isinstance(self.decision, FallbackDenied) else self.decision.warnings
        )

    @property
    def after(self) -> "PodSpecView":
        from croupier.core import jsonpatch
        from croupier.core.pods import podspec_view
        from croupier.core.pods.podspec_view import PodSpecView

        spec = podspec_view.read(jsonpatch.apply(self.pod, self.operations))
        return spec if isinstance(spec, PodSpecView) else self.spec


def show(outcome: FallbackPreview, output: str) -> int:
    """Print the preview and return the exit code."""
    if output == "json":
        typer.echo(rendering.json(as_data(outcome)))
    elif output == "yaml":
        typer.echo(rendering.yaml(as_data(outcome)), nl=False)
    else:
        print_text(outcome)
    return EXIT_CODES[outcome.state]


def print_text(outcome: FallbackPreview) -> None:
    """Print the decision, the diff, the reasons, and what the nodes offer."""
    typer.echo(
        f"Pod {outcome.spec.name or 'without a name'} {MESSAGES[outcome.state]}{_unchanged_reason(outcome)}."
    )
    changed = list(difference(outcome))
    if changed:
        typer.echo()
    for line in changed:
        colour = {"-": typer.colors.RED, "+": typer.colors.GREEN}.get(line.lstrip()[:1])
        typer.secho(line, fg=colour)
    if outcome.sentences:
        typer.echo()
    for sentence in outcome.sentences:
        typer.echo(f"{sentence[0].upper()}{sentence[1:]}.")
    if outcome.state != "Unchanged":
        _print_offers(outcome)


def _unchanged_reason(outcome: FallbackPreview) -> str:
    if outcome.state != "Unchanged":
        return ""
    requested = {name for view in outcome.spec.containers for name, amount in view.asks.items() if amount}
    if not requested:
        return ": it requests no cards"
    missing = sorted(name for name in requested if not outcome.index.exists(name))
    return f": {', '.join(missing)} is not a MIG profile" if missing else ": nodes offer all it requests"


def difference(outcome: FallbackPreview) -> Iterator[str]:
    """`-` and `+` lines below the container and the map they are in."""
    for before, after in zip(outcome.spec.containers, outcome.after.containers, strict=True):
        parts = [
            ("requests", list(_changed(before.requests, after.requests))),
            ("limits", list(_changed(before.limits, after.limits))),
        ]
        if any(lines for _, lines in parts):
            yield f"  {'init container' if before.init else 'container'} {before.name}"
        for key, lines in parts:
            yield from (f"    {key}:",) if lines else ()
            yield from (f"    {line}" for line in lines)
    old, new = outcome.spec.annotations, outcome.after.annotations
    if old != new:
        yield "  annotations"
        yield from (f"    - {key}: {value}" for key, value in old.items() if new.get(key) != value)
        yield from (f"    + {key}: {value}" for key, value in new.items() if old.get(key) != value)


def _changed(old: "Amounts", new: "Amounts") -> Iterator[str]:
    yield from (f"- {name}: {amount}" for name, amount in old.items() if new.get(name) != amount)
    yield from (f"+ {name}: {amount}" for name, amount in new.items() if old.get(name) != amount)


def _print_offers(outcome: FallbackPreview) -> None:
    offers = offered(outcome)
    count = len(outcome.index.nodes())
    nodes = terminal.plural(count, "node")
    typer.echo()
    if not offers:
        typer.echo(f"{nodes} {'has' if count == 1 else 'have'} no cards.")
        return
    typer.echo(f"Resources that {nodes} {'offers' if count == 1 else 'offer'}:")
    columns = {"nodes": "nodes", "allocatable": "allocatable"}
    if outcome.policy.prefer_available:
        columns["mostFree"] = "most free on one node"
    rows = [(name, *(str(offer[key]) for key in columns)) for name, offer in offers.items()]
    tables.echo(("resource", *columns.values()), rows)


def offered(outcome: FallbackPreview) -> dict[str, dict[str, Any]]:
    """Whole cards and MIG profiles, the largest first; resources with no allocatable amount count 0 nodes."""
    from croupier.core.cards import profile_size
    from croupier.core.pods.request_parser import GPU, MIG

    index = outcome.index
    accounts = list(index.snapshot().values())
    profiles = {name: profile_size.parse(name) for name in index.resources() if name.startswith(MIG)}
    known = sorted((parsed for parsed in profiles.values() if parsed is not None), reverse=True)
    unknown = sorted(name for name, parsed in profiles.items() if parsed is None)
    whole = (GPU,) if GPU in index.resources() else ()
    offers: dict[str, dict[str, Any]] = {}
    for name in (*whole, *(parsed.resource for parsed in known), *unknown):
        nodes = sum(1 for account in accounts if name in account and account[name].allocatable.whole >= 1)
        offers[name] = {"nodes": nodes, "allocatable": str(index.total(name).allocatable)}
        if outcome.policy.prefer_available:
            offers[name]["mostFree"] = str(index.max_free(name))
    return offers


def as_data(outcome: FallbackPreview) -> dict[str, Any]:
    from croupier.core import jsonpatch
    from croupier.core.fallbacks.fallback import FallbackChanges

    decision = outcome.decision
    fallback = decision if isinstance(decision, FallbackChanges) else FallbackChanges(())
    return {
        "pod": outcome.spec.name,
        "state": outcome.state,
        "rewrites": [
            {
                "container": rewrite.container,
                "from": rewrite.pair[0],
                "to": rewrite.pair[1],
                "asked": rewrite.asked,
                "given": rewrite.given,
            }
            for rewrite in fallback.rewrites
        ],
        "annotation": fallback.annotation or None,
        "sentences": list(outcome.sentences),
        "patch": jsonpatch.data(outcome.operations),
        "offers": offered(outcome),
    }
