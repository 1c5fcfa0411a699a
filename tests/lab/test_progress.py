"""LogProgress prints a long step when it begins and then every ten seconds."""

from croupier_lab.progress import LogProgress


class RecordedProgress:
    def __init__(self, *, steps: bool = True) -> None:
        self.now = 0.0
        self.lines: list[str] = []
        self.progress = LogProgress(self.lines.append, steps=steps, monotonic=lambda: self.now)

    def at(self, now: float, what: str, done: int) -> None:
        self.now = now
        self.progress.advance(what, done, 100)


def test_a_long_step_is_printed_every_ten_seconds():
    listener = RecordedProgress()
    for second in range(26):
        listener.at(second, "Building etcd", second * 2)

    assert listener.lines == [
        "Building etcd: 0 of 100, 0 s",
        "Building etcd: 20 of 100, 10 s",
        "Building etcd: 40 of 100, 20 s",
    ]


def test_the_next_step_is_printed_immediately_with_its_own_time():
    listener = RecordedProgress()
    listener.at(0, "Building etcd", 1)
    listener.at(3, "Building kwok", 2)
    listener.at(14, "Building kwok", 50)

    assert listener.lines[1:] == ["Building kwok: 2 of 100, 0 s", "Building kwok: 50 of 100, 11 s"]


def test_normal_steps_can_be_omitted():
    listener = RecordedProgress(steps=False)
    listener.progress.step("Starting etcd")
    listener.progress.say("A port was taken")

    assert listener.lines == ["A port was taken"]
