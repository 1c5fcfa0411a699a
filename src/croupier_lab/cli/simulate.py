"""`croupier market simulate` and `trace`: the CPU market replayed on a trace, without a cluster."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import rendering, tables, terminal

if TYPE_CHECKING:
    from croupier_lab.simulator.replay import ReplayScore
    from croupier_lab.simulator.trace import Trace

MAX_PODS = 1000
MAX_MINUTES = 7 * 24 * 60
MAX_CPUS = 10_000
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
    terminal.check_output(output, ("table", "json"))
    if capacity is not None and not 1 <= capacity <= MAX_CPUS:
        terminal.usage_error(f"--capacity {capacity}: must be 1 to {MAX_CPUS} CPUs.")
    workload = _read(trace)

    from croupier_lab.simulator import replay

    cpus = capacity or replay.default_capacity(workload)
    scores = replay.compare(workload, cpus, on_policy=_report_progress)
    if out is not None:
        _draw(scores, out)
    if output == "json":
        typer.echo(rendering.json(as_data(scores, cpus)))
    else:
        print_table(scores, cpus)


def trace(
    *,
    pods: Annotated[int, typer.Option(metavar="N", help="Number of pods; every third is elastic.")] = 30,
    minutes: Annotated[int, typer.Option(metavar="M", help="Length of the trace.")] = 60,
    seed: Annotated[int, typer.Option(metavar="S", help="The same seed gives the same trace.")] = 0,
) -> None:
    """Print a synthetic trace for `croupier market simulate`."""
    if not 1 <= pods <= MAX_PODS:
        terminal.usage_error(f"--pods {pods}: must be 1 to {MAX_PODS}.")
    if not 1 <= minutes <= MAX_MINUTES:
        terminal.usage_error(f"--minutes {minutes}: must be 1 to {MAX_MINUTES}.")

    from croupier_lab.simulator import synthetic
    from croupier_lab.simulator import trace as traces

    typer.echo(traces.to_csv(synthetic.rows(synthetic.SyntheticTraceOptions(pods, minutes, seed))), nl=False)


def _read(path: Path) -> "Trace":
    from croupier_lab.simulator import trace as traces

    try:
        return traces.read(sys.stdin.read() if str(path) == "-" else path.read_text())
    except OSError as error:
        terminal.usage_error(f"{path}: {error.strerror}.")
    except UnicodeDecodeError:
        terminal.usage_error(f"{path}: not a text file.")
    except traces.TraceError as error:
        terminal.usage_error(f"{path}: {error}.")


def _report_progress(name: str) -> None:
    if sys.stderr.isatty():
        typer.echo(f"Replaying {name} ...", err=True)


def _draw(scores: "list[ReplayScore]", out: Path) -> None:
    from croupier_lab.simulator import plot

    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, drawing in plot.draw(scores).items():
            (out / f"{name}.svg").write_text(drawing)
    except OSError as error:
        terminal.usage_error(f"--out {out}: {error.strerror}.")


def print_table(scores: "list[ReplayScore]", cpus: int) -> None:
    """Print one row per policy, and a legend of the columns."""
    first = scores[0]
    length = f"{first.seconds // 60} min {first.seconds % 60} s"
    typer.echo(f"{terminal.plural(first.pods, 'pod')} on a node with {cpus} CPUs, {length}:\n")
    tables.echo(HEADERS, [_row(score) for score in scores])
    typer.echo(
        "\nlate: share of the work not done in the second it arrived (latency) or within a minute (elastic)"
        "\nthrottled: share of pod-seconds in which a limit throttled a pod; slack: CPU allowed but not used"
        "\nlimits / CPU: largest sum of limits divided by the CPUs of the node; resizes: per pod and hour"
    )


def _row(score: "ReplayScore") -> tuple[str, ...]:
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


def as_data(scores: "list[ReplayScore]", cpus: int) -> dict[str, Any]:
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
