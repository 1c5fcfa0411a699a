"""Every annotation and label of Croupier, from the tables that the admission policy uses."""

from collections.abc import Sequence
from typing import Final

from croupier.admission import known_annotations
from croupier.admission.known_annotations import DocumentedKey
from tools.reference import markdown

HEAD: Final = """# Annotations and labels

Generated from the tables in src/croupier/admission/known_annotations.py.
The API server warns about any other annotation with one of these prefixes:
{prefixes} ([The webhook](../webhook.md#policies-in-the-api-server)).

"""


def page() -> str:
    tables = {"Annotations": known_annotations.ANNOTATIONS, "Labels": known_annotations.LABELS}
    prefixes = [markdown.code(prefix) for prefix in known_annotations.PREFIXES]
    sections = [_section(title, keys) for title, keys in tables.items()]
    return HEAD.format(prefixes=", ".join(prefixes)) + "\n".join(sections)


def _section(title: str, keys: Sequence[DocumentedKey]) -> str:
    by_users = [item for item in keys if item.by_users]
    by_croupier = [item for item in keys if not item.by_users]
    return "\n".join(
        (
            f"## {title} that you set\n",
            markdown.table(("key", "object", "meaning", "example"), map(_row, by_users)),
            f"## {title} that Croupier sets\n",
            markdown.table(("key", "object", "meaning", "example"), map(_row, by_croupier)),
        )
    )


def _row(item: DocumentedKey) -> tuple[str, str, str, str]:
    return markdown.code(item.key), item.kind, item.description, markdown.code(item.example)
