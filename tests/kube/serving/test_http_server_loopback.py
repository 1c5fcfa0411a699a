"""A response is sent without delay: a scheduler sends one request at a time, and waits for each."""

import socket

from croupier.kube.serving import http_server
from croupier.kube.serving.http_server import Address


def test_no_part_of_a_response_waits_for_an_acknowledgement():
    with http_server._listener(Address("127.0.0.1", 0)) as listener:
        listener.setblocking(True)
        with socket.create_connection(listener.getsockname()):
            connection, _ = listener.accept()
            with connection:
                assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
