"""Tests that a socket left open is reported at the end of the test that opened it."""

import gc
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


def test_a_socket_that_is_closed_during_the_check_is_no_leak(socket_watch: Any) -> None:
    held = [socket.socket()]

    def close(*_: object) -> None:  # as another thread may
        while held:
            held.pop().close()

    gc.callbacks.append(close)
    try:
        assert socket_watch.dropped() == []
    finally:
        gc.callbacks.remove(close)
