"""Which addresses are the gateway's own, by their words and by what they mean."""

import socket

import pytest

from kvota.gateway.own_addresses import OwnAddresses, network_of

PORTS = range(9192, 9203)
EVERYWHERE = ("0.0.0.0", "::")


def own(host: str = "127.0.0.1", advertised_host: str = "gateway.example") -> OwnAddresses:
    return OwnAddresses(host=host, advertised_host=advertised_host, ports=PORTS)


def an_address_of_this_machine() -> str | None:
    """Not a loopback one; None where there is no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return None
        return str(asked.getsockname()[0])


@pytest.mark.parametrize("host", ["127.0.0.1", "gateway.example", "GATEWAY.example", "localhost"])
def test_what_it_listens_at_and_what_clients_are_told_is_its_own(host: str) -> None:
    assert own().is_named(host, 9192)
    assert own().is_named(host, 9202)
    assert not own().is_named(host, 9203)


@pytest.mark.parametrize("host", ["127.0.0.2", "broker.example", "10.1.2.3", "::1"])
def test_other_addresses_with_the_same_port_are_not(host: str) -> None:
    assert not own().is_named(host, 9192)


def test_localhost_is_not_where_a_gateway_listens_elsewhere() -> None:
    assert not own("10.0.0.5").is_named("localhost", 9192)


@pytest.mark.parametrize("host", EVERYWHERE)
@pytest.mark.parametrize(
    "other", ["localhost", "127.0.0.1", "127.0.0.77", "::1", "::ffff:127.0.0.1"]
)
def test_everywhere_is_every_address_of_this_machine(host: str, other: str) -> None:
    assert own(host).is_named(other, 9200)


@pytest.mark.parametrize("host", EVERYWHERE)
def test_everywhere_is_no_other_machines(host: str) -> None:
    assert not own(host).is_named("192.0.2.77", 9200)
    assert not own(host).is_reached_at("2001:db8::7", 9200)


def test_everywhere_is_this_machines_address_in_its_network() -> None:
    address = an_address_of_this_machine()
    if address is None:
        pytest.skip("this machine has no address but loopback")

    assert own("0.0.0.0").is_reached_at(address, 9200)
    assert own("0.0.0.0").is_looked_up(address, 9200)
    assert not own("127.0.0.1").is_reached_at(address, 9200)


def test_names_are_looked_up_where_it_is_asked_for() -> None:
    assert not own().is_named("127.1", 9200)
    assert own().is_looked_up("127.1", 9200)
    assert not own().is_looked_up("127.2", 9200)
    assert own("localhost").is_looked_up("127.1", 9200)
    assert own("0.0.0.0").is_looked_up("127.2", 9200)
    assert not own("0.0.0.0").is_looked_up("nothing-there.invalid", 9200)


def test_a_name_is_what_was_listened_at() -> None:
    addresses = own("gateway-1.inside")
    assert not addresses.is_reached_at("10.7.7.7", 9200)

    addresses.listens_at({"10.7.7.7"})

    assert addresses.is_reached_at("10.7.7.7", 9200)
    assert addresses.is_reached_at("::ffff:10.7.7.7", 9200)


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1:2:3:4", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("?", "?"),
    ],
)
def test_what_one_client_has_of_addresses(host: str, network: str) -> None:
    assert network_of(host) == network
