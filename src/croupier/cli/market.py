"""`croupier market`: CPU limits that follow demand, rehearsed on a trace; its other verbs have own files."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import market_run, market_status, showing, tables, terminal

if TYPE_CHECKING:
    from croupier.sim.replay import Score
    from croupier.sim.trace import Trace

app = typer.Typer(help="CPU limits that follow demand.", no_args_is_help=True)
app.command("status")(market_status.status)
app.command("run")(market_run.run)

MOST_PODS = 1000
MOST_MINUTES = 7 * 24 * 60
MOST_CPUS = 10_000
HEADERS = (
    "who sets limits",
    "late, latency",
    "late, elastic",
    "throttled",
    "never done",
    "slack",
    "limits / CPU",
    "resizes",
)


@app.command("simulate")
def simulate(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A CSV file; - is stdin.")],
    *,
    capacity: Annotated[
        int | None, typer.Option(metavar="N", help="CPUs of the node; by default it is 60 % used on average.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Draw plots (SVG) into this folder.")
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="table|json", help="How to print it.")
    ] = "table",
) -> None:
    """Play a trace on one node under no limits, fixed limits, a recommender and the market, and compare.

    The trace has the columns time,pod,class,demand: seconds, a name, latency or elastic, and CPU.

    \b
    croupier market trace --pods 30 --minutes 60 > trace.csv
    croupier market simulate trace.csv --capacity 24 --out plots
    """
    if output not in ("table", "json"):
        terminal.refuse(f"--output {output}: it is table or json.")
    if capacity is not None and not 1 <= capacity <= MOST_CPUS:
        terminal.refuse(f"--capacity {capacity}: it is 1 to {MOST_CPUS} CPUs.")
    played = _read(trace)

    from croupier.sim import replay

    cpus = capacity or replay.default_capacity(played)
    scores = replay.compare(played, cpus, told=_told)
    if out is not None:
        _draw(scores, out)
    if output == "json":
        typer.echo(showing.json(as_data(scores, cpus)))
    else:
        tell(scores, cpus)


@app.command("trace")
def trace(
    *,
    pods: Annotated[int, typer.Option(metavar="N", help="How many; every third is elastic.")] = 30,
    minutes: Annotated[int, typer.Option(metavar="M", help="How long.")] = 60,
    seed: Annotated[int, typer.Option(metavar="S", help="The same seed gives the same trace.")] = 0,
) -> None:
    """Print an invented trace for `croupier market simulate`."""
    if not 1 <= pods <= MOST_PODS:
        terminal.refuse(f"--pods {pods}: it is 1 to {MOST_PODS}.")
    if not 1 <= minutes <= MOST_MINUTES:
        terminal.refuse(f"--minutes {minutes}: it is 1 to {MOST_MINUTES}.")

    from croupier.sim import synthetic
    from croupier.sim import trace as traces

    typer.echo(traces.written(synthetic.rows(synthetic.Shape(pods, minutes, seed))), nl=False)


def _read(path: Path) -> "Trace":
    from croupier.sim import trace as traces

    try:
        return traces.read(sys.stdin.read() if str(path) == "-" else path.read_text())
    except OSError as error:
        terminal.refuse(f"{path}: {error.strerror}.")
    except UnicodeDecodeError:
        terminal.refuse(f"{path}: it is no text.")
    except traces.TraceError as error:
        terminal.refuse(f"{path}: {error}.")


def _told(name: str) -> None:
    if sys.stderr.isatty():
        typer.echo(f"Playing {name} ...", err=True)


def _draw(scores: "list[Score]", out: Path) -> None:
    from croupier.sim import plot

    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, drawing in plot.draw(scores).items():
            (out / f"{name}.svg").write_text(drawing)
    except OSError as error:
        terminal.refuse(f"--out {out}: {error.strerror}.")


def tell(scores: "list[Score]", cpus: int) -> None:
    """A row for each who sets limits, and what the columns mean."""
    first = scores[0]
    length = f"{first.seconds // 60} min {first.seconds % 60} s"
    typer.echo(f"{first.pods} pods on a node with {cpus} CPUs, {length}:\n")
    tables.echo(HEADERS, [_row(score) for score in scores])
    typer.echo(
        "\nlate: work not done in the second it came (latency) or within a minute (elastic), of all such work"
        "\nthrottled: pod-seconds in which a limit kept a pod from CPU; slack: CPU allowed and not used"
        "\nlimits / CPU: the largest sum of limits for each CPU of the node; resizes: per pod and hour"
    )


def _row(score: "Score") -> tuple[str, ...]:
    return (
        score.name,
        f"{score.late_latency:.2f} %",
        f"{score.late_elastic:.2f} %",
        f"{score.throttled:.2f} %",
        f"{score.undone:.2f} %",
        "-" if score.slack is None else f"{score.slack:.1f}",
        "-" if score.committed is None else f"{score.committed:.2f}",
        f"{score.resizes:.1f}",
    )


def as_data(scores: "list[Score]", cpus: int) -> dict[str, Any]:
    return {
        "capacity": cpus,
        "pods": scores[0].pods,
        "seconds": scores[0].seconds,
        "contenders": [
            {
                "name": score.name,
                "lateLatencyPercent": score.late_latency,
                "lateElasticPercent": score.late_elastic,
                "throttledPercent": score.throttled,
                "undonePercent": score.undone,
                "slackCPU": score.slack,
                "limitsPerCPU": score.committed,
                "resizesPerPodHour": score.resizes,
            }
            for score in scores
        ],
    }
