"""A command hears at once that nothing listens."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from millstream.cli.failures import CommandFailedError
from millstream.cli.reaching import wait_for_a_broker
from millstream.client.settings import Address


def free_address() -> Address:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return Address("127.0.0.1", taken.getsockname()[1])


def test_all_refuse() -> None:
    addresses = [free_address(), free_address()]
    with pytest.raises(CommandFailedError) as raised:
        wait_for_a_broker(addresses, patience_ms=0)
    for each in addresses:
        assert f"{each}: connection refused" in str(raised.value)
    assert str(raised.value).endswith(" (-b or MILLSTREAM_BOOTSTRAP_SERVERS names other brokers)")


def test_a_name_that_nobody_has() -> None:
    with pytest.raises(CommandFailedError, match=r"no-such-host\.invalid:9092: "):
        wait_for_a_broker([Address("no-such-host.invalid", 9092)], patience_ms=0)
    with pytest.raises(CommandFailedError, match=r"no\.\.name:9092: not the name of a host"):
        wait_for_a_broker([Address("no..name", 9092)], patience_ms=0)


def test_one_of_several_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = Address("127.0.0.1", server.getsockname()[1])
        wait_for_a_broker([free_address(), there], patience_ms=0)


def test_one_that_is_about_to_start_is_waited_for() -> None:
    address = free_address()
    opened = []

    def start() -> None:
        time.sleep(0.2)
        opened.append(socket.create_server((address.host, address.port)))

    starting = threading.Thread(target=start)
    starting.start()
    wait_for_a_broker([address], patience_ms=20_000)
    starting.join()
    opened[0].close()
