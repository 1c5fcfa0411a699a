"""Every metric, read off the source: its name and help stand there once, where it is counted."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from croupier.cli.reference import paper

SOURCE: Final = Path(__file__).resolve().parents[2]
TYPES: Final = {
    "Counter": "counter",
    "CounterMetricFamily": "counter",
    "Gauge": "gauge",
    "GaugeMetricFamily": "gauge",
    "Histogram": "histogram",
}
LEDGER: Final = "Whoever keeps the ledger: `croupier extender`, with CRD also `croupier manager`"
PROCESSES: Final = {
    "kube/": "Every process",
    "book/": LEDGER,
    "extender/": "`croupier extender`",
    "admission/": "`croupier webhook`",
    "node/market/": "`croupier market run`",
    "node/": "`croupier node`",
    "controllers/limits/": "`croupier manager`, group limits",
    "controllers/ledger/": LEDGER,
    "controllers/inventory/": "`croupier manager`, group inventory",
    "controllers/bootstrap/": "`croupier manager`, group bootstrap",
    "controllers/handler": "`croupier manager`, groups inventory, bootstrap and pools",
    "controllers/": "`croupier manager`, group pools",
}
"""Where a file is counted in; the first that fits."""
HEAD: Final = """# Metrics

Generated from the source. Every process serves them at `/metrics` of its `--health` address.
A histogram has the series `_bucket`, `_sum` and `_count`. What is named after an object goes with it.

"""


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    type: str
    labels: tuple[str, ...]
    says: str
    file: str


class UnreadableMetricError(Exception):
    """A metric is declared in a way this reader does not know."""


def page() -> str:
    found = every()
    titles = dict.fromkeys(_process(one.file) for one in found)
    order = list(dict.fromkeys(PROCESSES.values()))
    sections = []
    for title in sorted(titles, key=order.index):
        here = sorted((one for one in found if _process(one.file) == title), key=lambda one: one.name)
        rows = [(paper.code(one.name), one.type, ", ".join(one.labels), one.says) for one in here]
        sections.append(f"## {title}\n\n{paper.table(('metric', 'type', 'labels', 'what it says'), rows)}")
    return HEAD + "\n".join(sections)


def every() -> list[Metric]:
    return [one for path in sorted(SOURCE.rglob("*.py")) for one in _declared(path)]


def _process(file: str) -> str:
    return next(title for prefix, title in PROCESSES.items() if file.startswith(prefix))


def _declared(path: Path) -> Iterator[Metric]:
    text = path.read_text(encoding="utf-8")
    if "prometheus_client" not in text or "cli/reference" in path.as_posix():
        return
    tree = ast.parse(text)
    file = path.relative_to(SOURCE).as_posix()
    lists, texts = dict(_lists(tree)), dict(_texts(tree))
    for call in ast.walk(tree):
        match call:
            case ast.Call(func=ast.Name(id=kind), args=[name, says, *more]) if kind in TYPES:
                given = {word.arg: word.value for word in call.keywords}
                labels = _labels(more[0] if more else given.get("labels"), lists)
                for spelled, said in _spellings(name, says, texts, f"{file}:{call.lineno}"):
                    yield Metric(_full(spelled, TYPES[kind]), TYPES[kind], labels, said, file)


def _full(name: str, kind: str) -> str:
    return f"{name}_total" if kind == "counter" and not name.endswith("_total") else name


def _spellings(
    name: ast.expr, says: ast.expr, texts: Mapping[str, Mapping[str, str]], where: str
) -> Iterator[tuple[str, str]]:
    """One, or as many as the table has over which the declaration loops."""
    match name, says:
        case ast.Constant(value=str(spelled)), ast.Constant(value=str(said)):
            yield spelled, said
        case ast.JoinedStr(values=[ast.Constant(value=str(prefix)), ast.FormattedValue()]), ast.Name():
            if len(texts) != 1:
                raise UnreadableMetricError(f"{where}: which of the tables {sorted(texts)} is meant?")
            (table,) = texts.values()
            yield from ((f"{prefix}{word}", said) for word, said in table.items())
        case _:
            raise UnreadableMetricError(f"{where}: write the name and help of the metric out.")


def _labels(node: ast.expr | None, lists: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    match node:
        case ast.List(elts=words):
            return tuple(_strings(words))
        case ast.Name(id=name):
            return lists.get(name, ())
    return ()


def _lists(tree: ast.AST) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Lists of words by the name they were given."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.List(elts=words)):
                yield name, tuple(_strings(words))


def _texts(tree: ast.Module) -> Iterator[tuple[str, dict[str, str]]]:
    """Tables of a module from a word to its help, or to a tuple that begins with it."""
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
