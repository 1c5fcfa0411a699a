"""A token in cookies: of any length in parts, and of no use after any change.

Other people's bug: a token larger than a cookie (kubernetes/dashboard#5142).
"""

import base64
import random
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.kube.client.errors import ConfigError
from croupier.ui import session_cookie
from croupier.ui.session_cookie import MAX_PARTS, SECURE_NAME, CookieSeal, SealedSession
from croupier.ui.token_review import MAX_TOKEN

SEAL = CookieSeal(bytes(range(32)))
BROWSER_LIMIT = 4096
ATTRIBUTES = "; HttpOnly; Max-Age=28800; Path=/; SameSite=strict; Secure"


def token(length: int) -> str:
    """As random as a real one: it cannot be compressed."""
    chance = random.Random(length)  # noqa: S311  # a test, not a secret
    return "".join(
        chance.choices("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", k=length)
    )


@given(st.integers(1, MAX_TOKEN))
def test_tokens_of_any_length_fit_in_cookies(length):
    session = SealedSession(token(length), 1763440000.5)
    cookies = session_cookie.parts(SECURE_NAME, SEAL.seal(session))
    assert cookies is not None
    assert set(cookies) <= set(session_cookie.names(SECURE_NAME))
    assert max(len(f"{name}={value}{ATTRIBUTES}") for name, value in cookies.items()) <= BROWSER_LIMIT
    joined = session_cookie.joined(SECURE_NAME, cookies)
    assert joined is not None
    assert SEAL.unseal(joined) == session


@pytest.mark.parametrize("length", [1, 2800, 2801, 5700, MAX_TOKEN])
def test_more_parts_for_longer_tokens_only(length):
    cookies = session_cookie.parts(SECURE_NAME, SEAL.seal(SealedSession(token(length), 0)))
    assert cookies is not None
    assert len(cookies) == -(-len("".join(cookies.values())) // 3802)


@given(st.integers(1, 9000), st.data())
def test_a_changed_byte_is_refused(length, data):
    sealed = SEAL.seal(SealedSession(token(length), 0))
    raw = bytearray(base64.urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4)))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    assert SEAL.unseal(base64.urlsafe_b64encode(raw).decode().rstrip("=")) is None


@given(st.text(max_size=200))
def test_what_was_not_sealed_is_refused(text):
    assert SEAL.unseal(text) is None


def test_another_key_does_not_open_it():
    sealed = SEAL.seal(SealedSession("secret", 0))
    assert CookieSeal(bytes(32)).unseal(sealed) is None
    assert "secret" not in sealed
    assert SEAL.seal(SealedSession("secret", 0)) != sealed, "a nonce is used once"
    assert "secret" not in repr(SealedSession("secret", 0))


def three_parts() -> dict[str, str]:
    cookies = session_cookie.parts(SECURE_NAME, SEAL.seal(SealedSession(token(8000), 0)))
    assert cookies is not None
    assert len(cookies) == 3
    return cookies


DAMAGED = {
    "no cookies": {},
    "a part is missing": {**three_parts(), f"{SECURE_NAME}-1": None},
    "the first is missing": {**three_parts(), SECURE_NAME: None},
    "no number of parts": {SECURE_NAME: "abc"},
    "another number of parts": {SECURE_NAME: f"{MAX_PARTS + 1}.abc"},
    "zero parts": {SECURE_NAME: "0.abc"},
    "a negative number": {SECURE_NAME: "-1.abc"},
    "another digit": {SECURE_NAME: "².abc"},
}


@pytest.mark.parametrize("cookies", DAMAGED.values(), ids=DAMAGED)
def test_incomplete_cookies_are_no_session(cookies):
    given_cookies = {name: value for name, value in cookies.items() if value is not None}
    assert session_cookie.joined(SECURE_NAME, given_cookies) is None


def test_parts_of_two_sessions_do_not_open():
    mixed = {**three_parts(), f"{SECURE_NAME}-2": three_parts()[f"{SECURE_NAME}-2"]}
    joined = session_cookie.joined(SECURE_NAME, mixed)
    assert joined is not None
    assert SEAL.unseal(joined) is None


def test_what_is_too_long_for_cookies_is_not_split():
    assert session_cookie.parts(SECURE_NAME, "x" * (MAX_PARTS * session_cookie.PART_CHARACTERS + 1)) is None
    assert session_cookie.parts(SECURE_NAME, "") is None


def jwt(claims: str) -> str:
    return f"head.{base64.urlsafe_b64encode(claims.encode()).decode().rstrip('=')}.signature"


EXPIRIES = {
    "a JWT": (jwt('{"exp": 1763440000}'), 1763440000.0),
    "no exp": (jwt("{}"), None),
    "exp is no number": (jwt('{"exp": [1]}'), None),
    "claims are no object": (jwt("[]"), None),
    "not JSON": (jwt("{"), None),
    "opaque": ("opaque", None),
    "not base64": ("a.!.c", None),
}


@pytest.mark.parametrize(("text", "expires"), EXPIRIES.values(), ids=EXPIRIES)
def test_the_expiry_of_a_token(text, expires):
    assert session_cookie.expiry_of(text) == expires


def test_the_key_of_a_file(tmp_path):
    (tmp_path / "key").write_bytes(bytes(range(32)))
    (tmp_path / "short").write_bytes(b"short")
    assert session_cookie.read_key(tmp_path / "key") == bytes(range(32))
    assert session_cookie.read_key(None) != session_cookie.read_key(None)
    with pytest.raises(ConfigError, match="has 5 bytes instead of 32"):
        session_cookie.read_key(tmp_path / "short")
    with pytest.raises(ConfigError, match="cannot read the session key"):
        session_cookie.read_key(tmp_path / "absent")


def test_the_key_of_the_user_is_kept_for_the_owner_only(tmp_path):
    path = tmp_path / "state" / "session-key"
    first = session_cookie.user_key(path)
    assert session_cookie.user_key(path) == first == path.read_bytes()
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)


def test_a_key_that_cannot_be_stored_or_is_damaged_is_not_used(tmp_path):
    (tmp_path / "file").write_bytes(b"short")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        keys = {session_cookie.user_key(path) for _ in range(2)}
        assert (len(keys), {len(key) for key in keys}) == (2, {32})
