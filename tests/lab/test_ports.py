"""Ports are free, different, and out of the reach of outgoing connections."""

import random
import socket

from croupier.lab import ports


def chance(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 (ports, no secrets)


def test_ports_differ_and_lie_below_what_the_kernel_hands_out():
    found = ports.free(20, chance=chance(1))

    assert len(set(found)) == 20
    assert max(found) < ports._ephemeral_start()


def test_a_port_somebody_listens_on_is_passed_over():
    (taken,) = ports.free(1, chance=chance(7))
    with socket.socket() as somebody:
        somebody.bind(("127.0.0.1", taken))
        somebody.listen()

        assert not ports.is_free(taken)
        assert ports.free(1, chance=chance(7)) != (taken,)
    assert ports.is_free(taken)
