"""Tests that a socket left open is reported at the end of the test that opened it."""

import socket
from typing import Any

import pytest


@pytest.mark.slow
def test_a_leaked_socket_is_reported_with_its_place(socket_watch: Any) -> None:
    held = socket.socket()
    ring: list[Any] = [socket.socket()]
    line = test_a_leaked_socket_is_reported_with_its_place.__code__.co_firstlineno + 3  # counted from the decorator
    ring.append(ring)
    del ring
    with held:
        assert socket_watch.dropped() == [f"{__file__}:{line}"]
