"""Every log line is structured, including those of libraries, and none contains a credential."""

import io
import json
import logging

import pytest
import structlog

from croupier.kube.serving import logs


@pytest.fixture(autouse=True)
def unchanged_logging():
    """Restore the global state that `setup` changes."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    logging.captureWarnings(False)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.fixture
def lines():
    """Log JSON from debug up; returns a function that reads the lines."""
    stream = io.StringIO()
    logs.setup(level="debug", form="auto", stream=stream)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_has_message_time_and_level(lines):
    structlog.get_logger("croupier.test").warning("will retry", retry_in=3)

    (line,) = lines()
    assert line.pop("time").endswith("Z")
    assert line == {"message": "will retry", "level": "warning", "logger": "croupier.test", "retry_in": 3}


def test_the_keys_of_a_line_have_a_fixed_order():
    stream = io.StringIO()
    logs.setup(form="json", stream=stream)
    try:
        raise ValueError("broken")
    except ValueError:
        structlog.get_logger("croupier.test").exception("failed", zone="a", node="b")

    keys = list(json.loads(stream.getvalue()))
    assert keys == ["time", "level", "message", "logger", "node", "zone", "exception"]


def test_text_has_the_same_order_without_brackets_or_padding():
    stream = io.StringIO()
    logs.setup(form="console", stream=stream)
    structlog.get_logger("croupier.test").info("pod ns/a is bound", zone="two words", node="b", cards=[1])

    time, line = stream.getvalue().rstrip("\n").split(" ", 1)
    assert time.endswith("Z")
    assert line == 'info    pod ns/a is bound cards=[1] logger=croupier.test node=b zone="two words"'


def test_no_color_means_no_styles(monkeypatch):
    class TerminalStream(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = []
    for no_color in ("", "1"):
        monkeypatch.setenv("NO_COLOR", no_color)
        stream = TerminalStream()
        logs.setup(stream=stream)
        structlog.get_logger().info("hello", node="a")
        shown.append("\x1b" in stream.getvalue())

    assert shown == [True, False]


def test_the_context_is_in_every_line_including_libraries(lines):
    with structlog.contextvars.bound_contextvars(controller="pools", key="a"):
        structlog.get_logger().info("ours")
        logging.getLogger("aiohttp").info("theirs: %d", 7)
    structlog.get_logger().info("outside")

    ours, theirs, outside = lines()
    assert ours["controller"] == theirs["controller"] == "pools"
    assert theirs["message"] == "theirs: 7"
    assert "controller" not in outside


def test_a_traceback_is_one_field(lines):
    try:
        raise ValueError("broken")
    except ValueError:
        structlog.get_logger().exception("failed")
        logging.getLogger("lib").exception("failed too")

    ours, theirs = lines()
    for line in (ours, theirs):
        assert "Traceback" in line["exception"]
        assert "ValueError: broken" in line["exception"]


def test_the_level_applies_to_all_loggers():
    stream = io.StringIO()
    logs.setup(level="warning", stream=stream)
    structlog.get_logger().info("quiet")
    logging.getLogger("lib").info("quiet")
    logging.getLogger("lib").warning("loud")

    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["loud"]


def test_the_console_format_is_not_json():
    stream = io.StringIO()
    logs.setup(form="console", stream=stream)
    structlog.get_logger().info("hello", key="a/b")

    assert "hello" in stream.getvalue()
    assert "key=a/b" in stream.getvalue()
    assert "{" not in stream.getvalue()


def test_an_unknown_level_is_refused():
    with pytest.raises(ValueError, match="use debug, info, warning or error"):
        logs.setup(level="chatty")


JWT = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEabcdef\n-----END RSA PRIVATE KEY-----"

LEAKS = {
    "a named field": {"token": "s3cr3t-value"},
    "a header": {"headers": {"Authorization": "Bearer s3cr3t-value"}},
    "a bearer token in a sentence": {"error": "401 with Bearer s3cr3t-value"},
    "a service account token": {"detail": f"got s3cr3t {JWT}".replace("s3cr3t ", "")},
    "a key": {"config": f"data {PEM} end"},
    "deep inside": {"request": {"options": [{"password": "s3cr3t-value"}]}},
}


@pytest.mark.parametrize("fields", LEAKS.values(), ids=LEAKS)
def test_credentials_are_hidden(lines, fields):
    structlog.get_logger().info("asked", **fields)

    text = json.dumps(lines())
    assert logs.HIDDEN in text
    for secret in ("s3cr3t", JWT, "MIIEabcdef"):
        assert secret not in text


def test_a_credential_in_a_traceback_is_hidden_too(lines):
    try:
        raise RuntimeError("refused: Bearer s3cr3t-value")
    except RuntimeError:
        structlog.get_logger().exception("failed")

    assert "s3cr3t" not in json.dumps(lines())


def test_harmless_text_is_not_hidden(lines):
    structlog.get_logger().info("counted", tokens_left=3, key="shop/web", secrets_store="configmaps")

    (line,) = lines()
    assert line["tokens_left"] == 3
    assert line["key"] == "shop/web"
