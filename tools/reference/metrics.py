"""Every metric, found by parsing the source for its declaration."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.generate_crds import REPOSITORY
from tools.reference import markdown, metric_names

SOURCE: Final = REPOSITORY / "src" / "croupier"
TYPES: Final = {
    "Counter": "counter",
    "CounterMetricFamily": "counter",
    "Gauge": "gauge",
    "GaugeMetricFamily": "gauge",
    "Histogram": "histogram",
}
LEDGER: Final = "Capacity manager: `croupier extender`, with CRD also `croupier manager`"
PROCESSES: Final = {
    "kube/": "Every process",
    "capacity/": LEDGER,
    "extender/": "`croupier extender`",
    "admission/": "`croupier webhook`",
    "ui/": "`croupier ui`",
    "node/market/": "`croupier market run`",
    "node/": "`croupier node`",
    "controllers/limits/": "`croupier manager`, group limits",
    "controllers/ledger/": LEDGER,
    "controllers/inventory/": "`croupier manager`, group inventory",
    "controllers/bootstrap/": "`croupier manager`, group bootstrap",
    "controllers/shared/": "`croupier manager`, groups inventory, bootstrap and pools",
    "controllers/": "`croupier manager`, group pools",
}
"""The process that exports the metrics of a file; the first matching prefix wins."""
HEAD: Final = """# Metrics

Generated from the source. Every process serves its metrics at `/metrics` on its `--health` address.
A histogram has the series `_bucket`, `_sum` and `_count`. Series labelled with an object are removed with it.

Names follow the conventions of Prometheus: the prefix `croupier_`, `_total` for counters, base units, and
`_duration_seconds` for histograms of time. `process_*` are the standard metrics of a process.

"""
FOUNDING: Final = """## Founding names

The designs that Croupier joins print the names below. They stay as they are, also where Prometheus would
name them differently: some gauges end with `_total`. The design of CPU limits prints the family `mbcas_*`;
its metrics keep this prefix and follow all other conventions.

"""


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    type: str
    labels: tuple[str, ...]
    says: str
    file: str


class UnreadableMetricError(Exception):
    """The declaration of a metric cannot be parsed."""


def page() -> str:
    metrics = all_metrics()
    titles = dict.fromkeys(_process(metric.file) for metric in metrics)
    order = list(dict.fromkeys(PROCESSES.values()))
    sections = []
    for title in sorted(titles, key=order.index):
        exported = sorted(
            (metric for metric in metrics if _process(metric.file) == title), key=lambda metric: metric.name
        )
        rows = [
            (markdown.code(metric.name), metric.type, ", ".join(metric.labels), metric.says)
            for metric in exported
        ]
        sections.append(f"## {title}\n\n{markdown.table(('metric', 'type', 'labels', 'description'), rows)}")
    return HEAD + "\n".join([_founding(metrics), *sections])


def _founding(metrics: Iterable[Metric]) -> str:
    types = {metric.name: metric.type for metric in metrics}
    names = sorted(metric_names.FOUNDING_NAMES & types.keys())
    rows = [(markdown.code(name), types[name], _note(name, types[name])) for name in names]
    return FOUNDING + markdown.table(("metric", "type", "note"), rows)


def _note(name: str, kind: str) -> str:
    return "the current number, not a counter" if kind == "gauge" and name.endswith("_total") else ""


def all_metrics() -> list[Metric]:
    return [metric for path in sorted(SOURCE.rglob("*.py")) for metric in _declared(path)]


def _process(file: str) -> str:
    return next(title for prefix, title in PROCESSES.items() if file.startswith(prefix))


def _declared(path: Path) -> Iterator[Metric]:
    text = path.read_text(encoding="utf-8")
    if "prometheus_client" not in text:
        return
    tree = ast.parse(text)
    file = path.relative_to(SOURCE).as_posix()
    lists, texts = dict(_lists(tree)), dict(_texts(tree))
    for call in ast.walk(tree):
        match call:
            case ast.Call(func=ast.Name(id=kind), args=[name, says, *more]) if kind in TYPES:
                keywords = {keyword.arg: keyword.value for keyword in call.keywords}
                labels = _labels(more[0] if more else keywords.get("labels"), lists)
                for full_name, help_text in _names_and_help(name, says, texts, f"{file}:{call.lineno}"):
                    yield Metric(_full(full_name, TYPES[kind]), TYPES[kind], labels, help_text, file)


def _full(name: str, kind: str) -> str:
    return f"{name}_total" if kind == "counter" and not name.endswith("_total") else name


def _names_and_help(
    name: ast.expr, says: ast.expr, texts: Mapping[str, Mapping[str, str]], where: str
) -> Iterator[tuple[str, str]]:
    """Name and help: one pair, or one per entry of the table over which the declaration loops."""
    match name, says:
        case ast.Constant(value=str(spelled)), ast.Constant(value=str(said)):
            yield spelled, said
        case ast.JoinedStr(values=[ast.Constant(value=str(prefix)), ast.FormattedValue()]), ast.Name():
            if len(texts) != 1:
                raise UnreadableMetricError(f"{where}: ambiguous table, one of {sorted(texts)}")
            (table,) = texts.values()
            yield from ((f"{prefix}{word}", said) for word, said in table.items())
        case _:
            raise UnreadableMetricError(f"{where}: the name and help of a metric must be literals")


def _labels(node: ast.expr | None, lists: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    match node:
        case ast.List(elts=words):
            return tuple(_strings(words))
        case ast.Name(id=name):
            return lists.get(name, ())
    return ()


def _lists(tree: ast.AST) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Module variables that are lists of strings, by name."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.List(elts=words)):
                yield name, tuple(_strings(words))


def _texts(tree: ast.Module) -> Iterator[tuple[str, dict[str, str]]]:
    """Module-level dicts from a name to its help, or to a tuple that starts with the help."""
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict() as table)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict() as table)
            ):
                found = dict(_pairs(table))
                if found:
                    yield name, found


def _pairs(table: ast.Dict) -> Iterator[tuple[str, str]]:
    for key, value in zip(table.keys, table.values, strict=True):
        match key, value:
            case (ast.Constant(value=str(word)), ast.Constant(value=str(said))) | (
                ast.Constant(value=str(word)),
                ast.Tuple(elts=[ast.Constant(value=str(said)), *_]),
            ):
                yield word, said


def _strings(words: Iterable[ast.expr]) -> Iterator[str]:
    for word in words:
        match word:
            case ast.Constant(value=str(text)):
                yield text
