"""In a log a long step is heard of when it begins and every ten seconds, not at every package."""

from croupier.lab.progress import Plain


class Listener:
    def __init__(self, *, steps: bool = True) -> None:
        self.now = 0.0
        self.heard: list[str] = []
        self.progress = Plain(self.heard.append, steps=steps, monotonic=lambda: self.now)

    def at(self, now: float, what: str, done: int) -> None:
        self.now = now
        self.progress.advance(what, done, 100)


def test_a_long_step_is_not_chatty():
    listener = Listener()
    for second in range(26):
        listener.at(second, "Building etcd", second * 2)

    assert listener.heard == [
        "Building etcd: 0 of 100, 0 s",
        "Building etcd: 20 of 100, 10 s",
        "Building etcd: 40 of 100, 20 s",
    ]


def test_the_next_step_is_heard_of_at_once_and_has_its_own_time():
    listener = Listener()
    listener.at(0, "Building etcd", 1)
    listener.at(3, "Building kwok", 2)
    listener.at(14, "Building kwok", 50)

    assert listener.heard[1:] == ["Building kwok: 2 of 100, 0 s", "Building kwok: 50 of 100, 11 s"]


def test_everyday_steps_can_be_left_out():
    listener = Listener(steps=False)
    listener.progress.step("Starting etcd")
    listener.progress.say("A port was taken")

    assert listener.heard == ["A port was taken"]
