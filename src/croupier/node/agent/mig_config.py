"""The text of `run.ai/mig.config`: YAML, read so strictly that no two readers can understand it differently.

Anybody who may annotate a node writes it, so what YAML allows beyond plain data (references, keys
given twice, endless depth) is refused before it is looked at.
"""

from collections.abc import Iterable
from typing import Any, Final

import yaml

from croupier.core.cards import layout
from croupier.core.cards.layout import Targets, Wishes
from croupier.core.ledgers.ledger import Refused
from croupier.node.cards.cards import Seen

_MOST_CHARACTERS: Final = 65_536


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
                    problem=f"{key.value!r} is given twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def read(text: str) -> Wishes | Refused:
    """What the annotation wishes, whatever cards there are."""
    if len(text) > _MOST_CHARACTERS:
        return _refused(f"it has {len(text)} characters; {_MOST_CHARACTERS} at most are read")
    try:
        data = yaml.load(text, _StrictLoader)  # noqa: S506 - a safe loader made stricter
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        return _refused(f"it is no YAML we can read: {where}{error.problem}")
    except (yaml.YAMLError, ValueError, TypeError):
        return _refused("it is no YAML we can read: it has characters, numbers or keys that cannot be meant")
    except RecursionError:
        return _refused("it is no YAML we can read: it is nested too deeply")
    return layout.read(data)


def _refused(why: str) -> Refused:
    return Refused(f"annotation {layout.ANNOTATION}", why)


def targets(text: str, cards: Iterable[Seen]) -> Targets | Refused:
    """How the annotation wants these cards cut, by index; cards it does not name are not among them."""
    wishes = read(text)
    if isinstance(wishes, Refused):
        return wishes
    return layout.targets(wishes, [known(card) for card in cards])


def known(card: Seen) -> layout.Card:
    return layout.Card(card.index, card.product, card.vendor, card.device, card.kinds)
