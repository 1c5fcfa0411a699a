"""A token in cookies: encrypted, authenticated, limited in time, and in parts that browsers accept.

All replicas with the same key can read the cookies, so no replica stores a session.
"""

import base64
import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from croupier.kube.client.errors import ConfigError

SECURE_NAME: Final = "__Host-croupier"
"""Browsers accept this name only over HTTPS, for one host, without a Domain."""
PLAIN_NAME: Final = "croupier"
"""Over plain HTTP on loopback, where browsers refuse the secure name."""
KEY_BYTES: Final = 32
PART_CHARACTERS: Final = 3800
"""Browsers limit a cookie with its name and attributes to 4096 bytes."""
MAX_PARTS: Final = 8
_NONCE_BYTES: Final = 12
_PURPOSE: Final = b"croupier session 1"


class SealedSession(msgspec.Struct, frozen=True, array_like=True):
    """The content of the cookies."""

    token: str
    expires: float

    def __repr__(self) -> str:
        return f"SealedSession(expires={self.expires})"


@dataclass(frozen=True, slots=True)
class CookieSeal:
    """Encrypts with AES-GCM, so a changed cookie cannot be opened."""

    key: bytes = field(repr=False)

    def seal(self, session: SealedSession) -> str:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = AESGCM(self.key).encrypt(nonce, msgspec.json.encode(session), _PURPOSE)
        return base64.urlsafe_b64encode(nonce + sealed).decode().rstrip("=")

    def unseal(self, text: str) -> SealedSession | None:
        """None for anything that `seal` with the same key did not write."""
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            plain = AESGCM(self.key).decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], _PURPOSE)
            return msgspec.json.decode(plain, type=SealedSession)
        except (ValueError, InvalidTag, msgspec.MsgspecError):
            return None


def read_key(path: Path | None) -> bytes:
    """The key of the file; without a file a new one, which this process alone knows."""
    if path is None:
        return secrets.token_bytes(KEY_BYTES)
    try:
        key = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the session key {path}: {error.strerror}") from error
    if len(key) != KEY_BYTES:
        raise ConfigError(
            f"the session key {path} has {len(key)} bytes instead of {KEY_BYTES}; "
            f"create one with `head -c {KEY_BYTES} /dev/urandom > FILE`"
        )
    return key


def user_key(path: Path) -> bytes:
    """The key in a file that only the user can read, created at its first use.

    Where it cannot be stored, a new key: then sessions end with the process.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError), open(path, "xb", opener=_private) as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        key = path.read_bytes()
    except OSError:
        return secrets.token_bytes(KEY_BYTES)
    return key if len(key) == KEY_BYTES else secrets.token_bytes(KEY_BYTES)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def parts(name: str, text: str) -> dict[str, str] | None:
    """The cookies by name; the first says how many there are. None if the text is too long for cookies."""
    pieces = [text[at : at + PART_CHARACTERS] for at in range(0, len(text), PART_CHARACTERS)]
    if not pieces or len(pieces) > MAX_PARTS:
        return None
    named = dict(zip(names(name), pieces, strict=False))
    return {**named, name: f"{len(pieces)}.{pieces[0]}"}


def joined(name: str, cookies: Mapping[str, str]) -> str | None:
    """The text of the parts; None if one is missing."""
    count, dot, _ = cookies.get(name, "").partition(".")
    if not dot or not count.isascii() or not count.isdigit() or not 1 <= int(count) <= MAX_PARTS:
        return None
    pieces = [cookies.get(part) for part in list(names(name))[: int(count)]]
    text = "".join(piece for piece in pieces if piece is not None)
    return text.partition(".")[2] if None not in pieces else None


def names(name: str) -> Iterator[str]:
    """The names of all possible parts."""
    yield name
    yield from (f"{name}-{number}" for number in range(1, MAX_PARTS))


def expiry_of(token: str) -> float | None:
    """`exp` of a JWT, not verified: it only shortens the session. None for other tokens."""
    try:
        payload = token.split(".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"])
    except (ValueError, IndexError, KeyError, TypeError, msgspec.MsgspecError):
        return None


def fingerprint(token: str) -> str:
    """Identifies a token without containing it."""
    return hashlib.sha256(token.encode()).hexdigest()
