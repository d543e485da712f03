import socket
from collections.abc import Iterator

import pytest

from kvota.localkafka.cluster.ports import PORT_MAX, PORT_MIN, choose_ports, free_ports, is_free
from kvota.model.errors import UsageError

HOST = "127.0.0.3"  # where nobody else listens


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server((HOST, 0)) as listener:
        yield listener.getsockname()[1]


def test_free_ports_differ_and_can_be_listened_on() -> None:
    ports = free_ports(HOST, 20)

    assert len(set(ports)) == 20
    assert all(PORT_MIN <= port < PORT_MAX for port in ports)
    assert all(is_free(HOST, port) for port in ports)


def test_a_port_with_a_listener_is_not_free(taken_port: int) -> None:
    assert not is_free(HOST, taken_port)


def test_a_host_of_another_machine_is_refused() -> None:
    with pytest.raises(UsageError, match=r"192\.0\.2\.1: no server can listen there"):
        choose_ports("192.0.2.1", 1, listeners=["PLAINTEXT"], first=None)


def test_no_two_listeners_share_a_port() -> None:
    nodes = choose_ports(HOST, 3, listeners=["PLAINTEXT", "SASL"], first=None)

    assert [node.node_id for node in nodes] == [1, 2, 3]
    assert len({port for node in nodes for port in (node.plain, node.sasl, node.controller)}) == 9


def test_the_first_port_is_followed_by_the_others_and_then_by_sasl() -> None:
    first = 14_001

    nodes = choose_ports(HOST, 2, listeners=["PLAINTEXT", "SASL"], first=first)

    assert [(node.plain, node.sasl) for node in nodes] == [
        (first, first + 2),
        (first + 1, first + 3),
    ]


def test_a_taken_first_port_is_told(taken_port: int) -> None:
    with pytest.raises(UsageError, match=f"{HOST}:{taken_port} is taken"):
        choose_ports(HOST, 1, listeners=["PLAINTEXT"], first=taken_port)


@pytest.mark.parametrize("first", [0, -1, 65_535, 70_000])
def test_a_first_port_that_cannot_be_is_told(first: int) -> None:
    with pytest.raises(UsageError, match=f"{first} is not a first port"):
        choose_ports(HOST, 1, listeners=["PLAINTEXT"], first=first)
