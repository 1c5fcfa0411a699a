"""`croupier settings`: validation errors by path, and the list of settings."""

from tests.cli.env import croupier

BAD = "{logLevel: Loud, reservation: {ttl: soon}}"


def test_every_error_of_a_file_is_listed(tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text(BAD)

    answer = croupier("settings", "check", "-f", str(file))
    assert answer.code == 1
    assert [line.partition(":")[0] for line in answer.out.splitlines()] == ["logLevel", "reservation.ttl"]
    assert croupier("settings", "check", "-f", "-", "-o", "json", stdin=BAD).data[0]["path"] == "logLevel"
    assert croupier("settings", "check", "-f", "-", stdin="{}").out == "All settings are valid.\n"

    file.write_text("{")
    unreadable = croupier("settings", "check", "-f", str(file))
    assert (unreadable.code, "Traceback" in unreadable.err) == (2, False)
    assert "No such file" in croupier("settings", "check", "-f", str(tmp_path / "none")).err


def test_the_detected_kind_of_file_is_reported():
    values = croupier("settings", "check", "-f", "-", stdin="{node: {cards: nvml}, logLevel: Loud}")
    assert values.code == 1
    assert "read as values of the chart (settings are under `settings`)" in values.err
    assert values.out.startswith("logLevel: in values of the chart this setting is settings")

    none = croupier("settings", "check", "-f", "-", stdin="{scheduler: {enabled: false}}")
    assert none.code == 0
    assert "have no `settings`" in none.out

    wrong = croupier("settings", "check", "-f", "-", stdin="{kind: Deployment}")
    assert wrong.code == 2
    for word in (
        "a Deployment cannot contain settings",
        "plain settings",
        "values of the chart",
        "`spec.settings`",
    ):
        assert word in wrong.err


def test_show_lists_all_settings():
    assert "fallback.direction" in croupier("settings", "show").out
    assert "fallback" in croupier("settings", "show", "-o", "json").data["properties"]
