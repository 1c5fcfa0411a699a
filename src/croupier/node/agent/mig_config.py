"""Strict parsing of the annotation `run.ai/mig.config`, which is YAML.

Users who may annotate nodes write it, so YAML features beyond plain data (references, duplicate keys, deep
nesting) are refused before it is interpreted.
"""

from collections.abc import Sequence
from typing import Any, Final

import yaml

from croupier.api.yaml_errors import INVALID_SCALARS
from croupier.core.cards import mig_annotation
from croupier.core.cards.mig_annotation import LayoutTargets, MigConfig
from croupier.core.model.gpu_card import GpuCard
from croupier.core.model.refusal import Refusal

_MAX_CHARACTERS: Final = 65_536


class _StrictLoader(yaml.SafeLoader):  # PyYAML is extended by inheritance alone
    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # the stubs leave it untyped
            raise yaml.MarkedYAMLError(problem="references are not allowed", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} appears twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def read(text: str) -> MigConfig | Refusal:
    """The layouts in the annotation, independent of the cards on the node."""
    if len(text) > _MAX_CHARACTERS:
        return _refused(f"it has {len(text)} characters; at most {_MAX_CHARACTERS} are allowed")
    try:
        data = yaml.load(text, _StrictLoader)  # noqa: S506 - a safe loader made stricter
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        return _refused(f"it is not valid YAML: {where}{error.problem}")
    except (yaml.YAMLError, *INVALID_SCALARS):
        return _refused("it is not valid YAML: it has unsupported characters, numbers or keys")
    except RecursionError:
        return _refused("it is not valid YAML: it is nested too deeply")
    return mig_annotation.read(data)


def _refused(why: str) -> Refusal:
    return Refusal(f"annotation {mig_annotation.ANNOTATION}", why)


def targets(text: str, cards: Sequence[GpuCard]) -> LayoutTargets | Refusal:
    """The requested layouts by card index. Cards that the annotation does not name are not included."""
    wishes = read(text)
    if isinstance(wishes, Refusal):
        return wishes
    return mig_annotation.targets(wishes, cards)
