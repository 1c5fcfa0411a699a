"""Generates the README of the Helm chart from the comments of its values.yaml.

A value without a comment of its own is described by that of its group, which has a row, too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import yaml

from tools.reference import markdown

README: Final = "charts/croupier/README.md"
VALUES: Final = "charts/croupier/values.yaml"
HEADERS: Final = ("value", "default", "description")
INTRODUCTION: Final = """\
# Helm chart of Croupier

Croupier allocates GPU cards and CPU limits of a Kubernetes cluster from one ledger.

```sh
helm upgrade --install croupier charts/croupier --namespace croupier --create-namespace -f values.yaml
helm test croupier --namespace croupier
kubectl --namespace croupier logs croupier-doctor
```

- **Image.** No registry has one. Build it from `image/Dockerfile`, push it to a registry that your nodes
  can reach, and set `image.repository` and `image.tag`. `scheduler.image.repository` is the kube-scheduler
  image of your cluster.
- **Namespace.** Any; Deckhouse uses `d8-gpu-operator`. It is dedicated to Croupier, because the node agents
  need Pod Security `privileged` and the webhook ignores its pods. Commands such as `croupier doctor` find
  it.
- **One installation per cluster.** Cluster-scoped objects (CRDs, policies, webhook configurations, roles)
  have the same names in every release, because two installations would allocate the same cards. Helm
  refuses the second release.
- **Replicas.** Two of each process, except on a cluster of exactly one node. With
  `settings.capacityManager: InMemory` there is one extender.
- **Upgrade.** Pass your values with `-f values.yaml` or `--reset-then-reuse-values`. `--reuse-values` keeps
  the defaults of the previous version and is refused. `CHANGELOG.md` and `docs/operations-cards.md`
  describe upgrades.
- **Test.** `helm test` runs `croupier doctor` in a pod and fails if a finding needs action.

All objects have the [recommended
labels](https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/).
`app.kubernetes.io/component` is the process or the part, such as `extender` or `policies`.

## Values

This file is generated from the comments of `values.yaml` by `make generate`. `values.schema.json` describes
the types; an unknown value is an error.

"""


@dataclass(frozen=True, slots=True)
class ChartValue:
    """A row of the table; a group of values has no default."""

    key: str
    default: str
    description: str


def render(values: str) -> str:
    """The README for this values.yaml."""
    rows = ((markdown.code(row.key), markdown.code(row.default), row.description) for row in rows_of(values))
    return INTRODUCTION + markdown.table(HEADERS, rows)


def rows_of(values: str) -> list[ChartValue]:
    """The values and the groups with a comment, in the order of the file."""
    document: yaml.MappingNode = yaml.compose(values, Loader=yaml.SafeLoader)
    return list(_rows(document, (), values.splitlines()))


def _rows(group: yaml.MappingNode, path: tuple[str, ...], lines: Sequence[str]) -> Iterator[ChartValue]:
    for name, value in group.value:
        here = (*path, name.value)
        comment = _comment(lines, name.start_mark.line, name.start_mark.column)
        nested = isinstance(value, yaml.MappingNode) and not value.flow_style
        if not nested or comment:
            yield ChartValue(".".join(here), "" if nested else _default(value), comment)
        if nested:
            yield from _rows(value, here, lines)


def _comment(lines: Sequence[str], line: int, column: int) -> str:
    """The comment directly above a line, at the same indentation."""
    prefix, words = f"{' ' * column}#", list[str]()
    while line > 0 and lines[line - 1].startswith(prefix):
        line -= 1
        words.insert(0, lines[line].removeprefix(prefix).strip())
    return " ".join(words)


def _default(value: yaml.Node) -> str:
    if isinstance(value, yaml.ScalarNode):
        return value.value or '""'
    loaded = yaml.safe_load(yaml.serialize(value, Dumper=yaml.SafeDumper))
    return str(yaml.safe_dump(loaded, default_flow_style=True, width=1000)).strip()
