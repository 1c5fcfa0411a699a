"""The bodies of actions and what-if questions, decoded strictly. docs/ui-api.md describes them."""

from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from croupier.api import pod_manifest
from croupier.api.core_v1 import Pod
from croupier.core.explanation.card_outcomes import CardsAction, CardVerb
from croupier.core.model.refusal import Refusal
from croupier.core.placement.card_selection import Strategy
from croupier.core.pods.request_parser import CARDS, LEDGER, POOL, RATIO, mig_resource

T = TypeVar("T")
Group = Literal["cards", "pools", "reservations"]

MAX_CARDS: Final = 512
MAX_COPIES: Final = 10_000
MAX_REASON: Final = 256

GROUPS: Final[dict[str, Group]] = {
    "assign": "cards",
    "unassign": "cards",
    "drain": "cards",
    "undrain": "cards",
    "retire": "cards",
    "unretire": "cards",
    "confirm": "pools",
    "share": "pools",
    "release": "reservations",
}
"""The group by which an action is switched on."""
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "assign": ("cards", "pool"),
    "unassign": ("cards",),
    "drain": ("cards", "reason"),
    "undrain": ("cards",),
    "retire": ("cards", "reason"),
    "unretire": ("cards",),
    "confirm": ("pool",),
    "share": ("pool", "allocation"),
    "release": ("namespace", "name"),
}
_ALL_FIELDS: Final = ("cards", "pool", "reason", "allocation", "namespace", "name")
_OPTIONAL: Final = ("reason",)


class BadActionRequest(Exception):
    """The body cannot be used. The text is the sentence for the user."""

    status = 400


class ActionNotEnabled(BadActionRequest):
    """The action is switched off."""

    status = 403


Name = Annotated[str, Meta(min_length=1, max_length=253)]


class ActionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    action: Annotated[str, Meta(max_length=32)]
    cards: tuple[Name, ...] = ()
    pool: Annotated[str, Meta(max_length=253)] = ""
    reason: str = ""
    allocation: dict[str, Any] | None = None
    namespace: Annotated[str, Meta(max_length=253)] = ""
    name: Annotated[str, Meta(max_length=253)] = ""
    versions: dict[str, str] = {}

    @property
    def cards_action(self) -> CardsAction:
        verb: CardVerb = self.action  # type: ignore[assignment]  # GROUPS says that it is a verb of cards
        return CardsAction(verb, self.cards, self.pool, self.reason)


class RequestForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A card request without a manifest."""

    cards: Annotated[int, Meta(ge=0, le=32)] = 1
    percent: Annotated[int, Meta(ge=0, le=100)] = 100
    profile: Annotated[str, Meta(max_length=64)] = ""
    pool: Annotated[str, Meta(max_length=253)] = ""
    units: Annotated[int, Meta(ge=0, le=100_000)] = 0
    namespace: Annotated[str, Meta(max_length=63)] = "default"


class AddedCards(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cards: Annotated[tuple[Name, ...], Meta(max_length=MAX_CARDS)]
    pool: Name


class WhatIfBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    manifest: Annotated[str, Meta(max_length=65_536)] | None = None
    form: RequestForm | None = None
    copies: int = 1
    strategies: Annotated[tuple[Strategy, ...], Meta(max_length=3)] = ()
    add: AddedCards | None = None


def action(content: bytes) -> ActionBody:
    body = _decode(content, ActionBody)
    if body.action not in _FIELDS:
        raise BadActionRequest(f"there is no action {body.action[:32]}; the actions are {', '.join(_FIELDS)}")
    fields = _FIELDS[body.action]
    given = {name for name in _ALL_FIELDS if getattr(body, name)}
    if missing := [name for name in fields if name not in given and name not in _OPTIONAL]:
        raise BadActionRequest(f"the action {body.action} needs {' and '.join(missing)}")
    if extra := sorted(given - set(fields)):
        raise BadActionRequest(f"the action {body.action} does not use {' and '.join(extra)}; leave it out")
    if len(body.cards) > MAX_CARDS:
        raise BadActionRequest(f"{len(body.cards)} cards are too many; change at most {MAX_CARDS} at once")
    if len(set(body.cards)) < len(body.cards):
        raise BadActionRequest("a card is named twice; name each card once")
    if len(body.reason) > MAX_REASON:
        raise BadActionRequest(f"the reason is too long; write at most {MAX_REASON} characters")
    return body


def what_if(content: bytes) -> WhatIfBody:
    body = _decode(content, WhatIfBody)
    if (body.manifest is None) == (body.form is None):
        raise BadActionRequest("the question needs either a manifest or a form")
    if not 1 <= body.copies <= MAX_COPIES:
        raise BadActionRequest(f"{body.copies} copies: must be 1 to {MAX_COPIES}")
    return body


def pod(body: WhatIfBody) -> Pod:
    """The pod that is asked about."""
    text, form = body.manifest, body.form or RequestForm()
    found = pod_manifest.pod(text) if text is not None else _form_pod(form)
    if isinstance(found, Refusal):
        raise BadActionRequest(f"the manifest cannot be used: {found}")
    view = pod_manifest.schedulable(found)
    if isinstance(view, Refusal):
        raise BadActionRequest(f"the pod cannot be placed: {view}")
    if not view.wants:
        raise BadActionRequest("the pod asks for no cards; ask for cards, a MIG profile or units of a pool")
    return found


def _form_pod(form: RequestForm) -> Pod | Refusal:
    limits, annotations = {LEDGER: "1"}, {}
    if form.profile and form.pool:
        return Refusal("a MIG profile and a pool exclude each other: ask for units of the pool")
    if form.profile:
        limits[mig_resource(form.profile)] = str(form.cards)
    elif form.pool and form.units:
        limits[POOL + form.pool] = str(form.units)
    else:
        annotations = {CARDS: str(form.cards), RATIO: str(form.percent)}
        if form.pool:
            limits[POOL + form.pool] = str(form.cards * form.percent)
    container = {"name": "main", "resources": {"limits": limits, "requests": limits}}
    data = {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}
    return pod_manifest.decode(data, form.namespace)


def _decode(content: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        raise BadActionRequest(f"the request cannot be used: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadActionRequest("the request is not JSON") from error
