"""A build is as far as the packages that are compiled, each counted once."""

from croupier.lab.compiling import Account


def account() -> Account:
    return Account({"server": frozenset({"fmt", "net", "server"}), "client": frozenset({"fmt", "client"})})


def test_each_package_the_compiler_names_counts_once():
    counted = account()

    assert [counted.read(line) for line in ("fmt\n", "net\n", "fmt\n")] == [True, True, False]
    assert (counted.done, counted.total) == (2, 4)


def test_other_lines_do_not_count():
    counted = account()

    for line in ("# net\n", "go: downloading example.org/net v1.2.3\n", "net/http\n", "\n"):
        assert not counted.read(line)
    assert counted.done == 0


def test_what_was_compiled_on_an_earlier_day_is_done_when_its_program_is():
    counted = account()
    counted.read("net\n")

    counted.finish("server")

    assert (counted.done, counted.total) == (3, 4)
    assert not counted.read("fmt\n")
