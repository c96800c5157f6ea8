"""A socket nobody closes is found at the end of the test that opened it."""

import socket
from typing import Any


def test_a_socket_nobody_can_close_any_more_is_told_by_its_place(socket_watch: Any) -> None:
    held = socket.socket()
    ring: list[Any] = [socket.socket()]
    line = test_a_socket_nobody_can_close_any_more_is_told_by_its_place.__code__.co_firstlineno + 2
    ring.append(ring)
    del ring
    with held:
        assert socket_watch.dropped() == [f"{__file__}:{line}"]
