"""An answer goes out as it is written: a scheduler asks one question at a time, and waits for each."""

import socket

from croupier.kube import serving
from croupier.kube.serving import Address


def test_no_part_of_an_answer_waits_for_an_acknowledgement():
    with serving._listener(Address("127.0.0.1", 0)) as listener:
        listener.setblocking(True)
        with socket.create_connection(listener.getsockname()):
            connection, _ = listener.accept()
            with connection:
                assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
