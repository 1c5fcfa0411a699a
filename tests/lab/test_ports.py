"""Ports are free, different, and below the ephemeral range."""

import random
import socket

from croupier_lab import ports


def chance(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 (ports, no secrets)


def test_ports_differ_and_are_below_the_ephemeral_range():
    chosen = ports.free(20, chance=chance(1))

    assert len(set(chosen)) == 20
    assert max(chosen) < ports._ephemeral_start()


def test_a_port_in_use_is_skipped():
    (taken,) = ports.free(1, chance=chance(7))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", taken))
        listener.listen()

        assert not ports.is_free(taken)
        assert ports.free(1, chance=chance(7)) != (taken,)
    assert ports.is_free(taken)


def test_a_port_is_not_chosen_again_before_its_component_listens():
    chosen = [port for _ in range(20) for port in ports.free(20, chance=chance(3))]

    assert len(set(chosen)) == len(chosen)
