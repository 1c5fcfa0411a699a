"""Build progress counts each compiled package once."""

from croupier_lab.build_progress import BuildProgress


def account() -> BuildProgress:
    return BuildProgress(
        {"server": frozenset({"fmt", "net", "server"}), "client": frozenset({"fmt", "client"})}
    )


def test_each_compiled_package_counts_once():
    progress = account()

    assert [progress.read(line) for line in ("fmt\n", "net\n", "fmt\n")] == [True, True, False]
    assert (progress.done, progress.total) == (2, 4)


def test_other_lines_do_not_count():
    progress = account()

    for line in ("# net\n", "go: downloading example.org/net v1.2.3\n", "net/http\n", "\n"):
        assert not progress.read(line)
    assert progress.done == 0


def test_cached_packages_count_when_their_program_is_finished():
    progress = account()
    progress.read("net\n")

    progress.finish("server")

    assert (progress.done, progress.total) == (3, 4)
    assert not progress.read("fmt\n")
