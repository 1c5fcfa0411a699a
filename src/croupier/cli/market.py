"""`croupier market`: simulate the CPU market on a trace; the other verbs have their own modules."""

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
    "policy",
    "late, latency",
    "late, elastic",
    "throttled",
    "unfinished",
    "slack",
    "limits / CPU",
    "resizes",
)


@app.command("simulate")
def simulate(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="CSV file; - is stdin.")],
    *,
    capacity: Annotated[
        int | None, typer.Option(metavar="N", help="CPUs of the node; default: 60 % average utilization.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write plots (SVG) to this folder.")] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="table|json", help="Output format.")
    ] = "table",
) -> None:
    """Replay a trace on one node with no limits, fixed limits, a recommender and the market; compare them.

    The trace has the columns time,pod,class,demand: seconds, pod name, latency or elastic, and CPU.

    \b
    croupier market trace --pods 30 --minutes 60 > trace.csv
    croupier market simulate trace.csv --capacity 24 --out plots
    """
    if output not in ("table", "json"):
        terminal.refuse(f"--output {output}: must be table or json.")
    if capacity is not None and not 1 <= capacity <= MOST_CPUS:
        terminal.refuse(f"--capacity {capacity}: must be 1 to {MOST_CPUS} CPUs.")
    workload = _read(trace)

    from croupier.sim import replay

    cpus = capacity or replay.default_capacity(workload)
    scores = replay.compare(workload, cpus, told=_told)
    if out is not None:
        _draw(scores, out)
    if output == "json":
        typer.echo(showing.json(as_data(scores, cpus)))
    else:
        tell(scores, cpus)


@app.command("trace")
def trace(
    *,
    pods: Annotated[int, typer.Option(metavar="N", help="Number of pods; every third is elastic.")] = 30,
    minutes: Annotated[int, typer.Option(metavar="M", help="Length of the trace.")] = 60,
    seed: Annotated[int, typer.Option(metavar="S", help="The same seed gives the same trace.")] = 0,
) -> None:
    """Print a synthetic trace for `croupier market simulate`."""
    if not 1 <= pods <= MOST_PODS:
        terminal.refuse(f"--pods {pods}: must be 1 to {MOST_PODS}.")
    if not 1 <= minutes <= MOST_MINUTES:
        terminal.refuse(f"--minutes {minutes}: must be 1 to {MOST_MINUTES}.")

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
        terminal.refuse(f"{path}: not a text file.")
    except traces.TraceError as error:
        terminal.refuse(f"{path}: {error}.")


def _told(name: str) -> None:
    if sys.stderr.isatty():
        typer.echo(f"Replaying {name} ...", err=True)


def _draw(scores: "list[Score]", out: Path) -> None:
    from croupier.sim import plot

    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, drawing in plot.draw(scores).items():
            (out / f"{name}.svg").write_text(drawing)
    except OSError as error:
        terminal.refuse(f"--out {out}: {error.strerror}.")


def tell(scores: "list[Score]", cpus: int) -> None:
    """Print one row per policy, and a legend of the columns."""
    first = scores[0]
    length = f"{first.seconds // 60} min {first.seconds % 60} s"
    typer.echo(f"{first.pods} pods on a node with {cpus} CPUs, {length}:\n")
    tables.echo(HEADERS, [_row(score) for score in scores])
    typer.echo(
        "\nlate: share of the work not done in the second it arrived (latency) or within a minute (elastic)"
        "\nthrottled: share of pod-seconds in which a limit throttled a pod; slack: CPU allowed but not used"
        "\nlimits / CPU: largest sum of limits divided by the CPUs of the node; resizes: per pod and hour"
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
