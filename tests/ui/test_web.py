"""The sources of the page agree with each other, and what a browser loads first is small."""

import json
import re
from pathlib import Path
from typing import Final

import pytest

from tools.web import STATIC, WEB

SOURCES: Final = WEB / "src"
CATALOGUE: Final = SOURCES / "ru.ts"
SHELL_LIMIT: Final = 60_000
RUSSIAN_FORMS: Final = 3

STRING: Final = r"'((?:[^'\\]|\\.)*)'"
TEXT: Final = re.compile(rf'\b(?:t|msg)\(\s*(?:{STRING}|"((?:[^"\\]|\\.)*)")')
ENTRY: Final = re.compile(rf"^  {STRING}:\s+{STRING},$", re.MULTILINE)
PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
CLASS_ATTRIBUTE: Final = re.compile(r'\bclass=(?:"([^"]*)"|(\{))')
QUOTED: Final = re.compile(r"'([^']*)'")
TEMPLATE: Final = re.compile(r"`([^`]*)`")
COMPARED: Final = re.compile(r"[!=]==\s*'[^']*'")
CLASS_NAME: Final = re.compile(r"[a-z][\w-]*")
RULE_CLASS: Final = re.compile(r"\.(-?[A-Za-z_][\w-]*)")


def unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def sources(*suffixes: str) -> dict[str, str]:
    """The text of each file of the page by its path, without the catalogue."""
    paths = (path for path in sorted(SOURCES.rglob("*")) if path.suffix in suffixes and path != CATALOGUE)
    return {path.relative_to(SOURCES).as_posix(): path.read_text() for path in paths}


def english() -> set[str]:
    """Every text that the sources pass to t() or msg()."""
    found = (match for text in sources(".ts", ".tsx").values() for match in TEXT.finditer(text))
    return {unescaped(match[1] if match[1] is not None else match[2]) for match in found}


def russian() -> dict[str, str]:
    return {unescaped(key): unescaped(text) for key, text in ENTRY.findall(CATALOGUE.read_text())}


def expression(text: str, start: int) -> str:
    """What is between the brace before `start` and the one that closes it."""
    depth, end = 1, start
    while depth:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    return text[start : end - 1]


def classes(text: str) -> set[str]:
    """The names in `class` attributes that are written out; a name with ${...} in it is not."""
    written: list[str] = []
    for match in CLASS_ATTRIBUTE.finditer(text):
        if match[2] is None:
            written.append(match[1])
            continue
        code = COMPARED.sub("", expression(text, match.end()))
        written += QUOTED.findall(code)
        written += (re.sub(r"\$\{[^}]*\}", "$", template) for template in TEMPLATE.findall(code))
    names = (name for part in written for name in part.split())
    return {name for name in names if CLASS_NAME.fullmatch(name)}


def styled() -> set[str]:
    """Classes that a selector of the style sheet names."""
    text = re.sub(r"/\*.*?\*/", "", (SOURCES / "style.css").read_text(), flags=re.DOTALL)
    text = re.sub(r"@import[^;]*;", "", text)
    return set(RULE_CLASS.findall(re.sub(r"\{[^{}]*\}", "{}", text)))


def test_every_text_has_a_russian_one():
    assert english() - russian().keys() == set()


def test_the_russian_catalogue_has_no_unused_text():
    assert russian().keys() - english() == set()
    assert len(ENTRY.findall(CATALOGUE.read_text())) == len(russian())


def test_every_line_of_the_catalogue_is_read():
    """A line that the pattern of this test does not match would be checked by nothing."""
    rest = ENTRY.sub("", CATALOGUE.read_text()).splitlines()
    assert [line for line in rest if line.strip() and not line.startswith(("//", "export ", "}"))] == []


@pytest.mark.parametrize("path", sources(".ts", ".tsx"))
def test_no_text_is_built_of_a_template(path: str):
    """The catalogue cannot have a text that exists only at run time."""
    assert re.search(r"\b(?:t|msg)\(\s*`", sources(".ts", ".tsx")[path]) is None


def test_a_translation_has_the_same_placeholders():
    def differs(key: str, text: str) -> bool:
        expected = set(PLACEHOLDER.findall(key))
        return any(set(PLACEHOLDER.findall(form)) != expected for form in text.split("|"))

    assert {key: text for key, text in russian().items() if differs(key, text)} == {}


def test_a_text_with_forms_for_numbers_has_three_in_russian():
    def forms(key: str) -> int:
        return RUSSIAN_FORMS if "|" in key else 1

    assert {key: text for key, text in russian().items() if len(text.split("|")) != forms(key)} == {}


def test_no_translation_is_empty():
    assert [key for key, text in russian().items() if not all(form.strip() for form in text.split("|"))] == []


@pytest.mark.parametrize("path", sources(".tsx"))
def test_every_class_has_a_rule(path: str):
    assert classes(sources(".tsx")[path]) - styled() == set()


def test_the_shell_is_small():
    """Goal U2: HTML, style, the script and what it imports at once, as they are sent."""
    page = (STATIC / "index.html").read_text()
    loaded = re.findall(r'(?:href|src)="/(assets/[^"]+)"', page)
    assert {Path(name).suffix for name in loaded} == {".js", ".css"}
    sizes = {name: (STATIC / f"{name}.gz").stat().st_size for name in ["index.html", *loaded]}
    assert sum(sizes.values()) <= SHELL_LIMIT, sizes


def test_the_shell_has_no_catalogue():
    page = (STATIC / "index.html").read_text()
    assert re.search(r"assets/ru-", page) is None
    assert len(list(STATIC.glob("assets/ru-*.js"))) == 1


def test_two_packages_are_shipped_and_two_build():
    package = json.loads((WEB / "package.json").read_text())
    assert set(package["dependencies"]) == {"preact", "uplot"}
    assert set(package["devDependencies"]) == {"esbuild", "typescript"}


def test_the_lock_file_names_no_registry():
    """Packages are found by their hashes, in whichever registry npm is set up to use."""
    text = (WEB / "package-lock.json").read_text()
    packages = json.loads(text)["packages"]
    assert [name for name, package in packages.items() if "resolved" in package] == []
    assert [name for name, package in packages.items() if name and "integrity" not in package] == []
    assert "registry" not in text
