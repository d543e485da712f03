"""What operators type: users, client ids, both, ips, brokers; adding, deleting, describing; and mistakes.

Lines follow each other: a later one sees what an earlier one has set.
"""

from collections.abc import Iterator

SERVER = ("--bootstrap-server", "{address}")


def alter(line: str, *more: str) -> tuple[str, ...]:
    return (*SERVER, "--alter", *line.split(), *more)


def describe(line: str) -> tuple[str, ...]:
    return (*SERVER, "--describe", *line.split())


USER = "--entity-type users --entity-name"
CLIENT = "--entity-type clients --entity-name"
IP = "--entity-type ips --entity-name"
ADD, DELETE = "--add-config", "--delete-config"


def command_lines(config_file: str) -> Iterator[tuple[str, ...]]:
    """All of them; the file has two quotas."""
    yield from _users(config_file)
    yield from _clients_and_both()
    yield from _ips()
    yield from _mistakes()
    yield from _other_settings()


def _users(config_file: str) -> Iterator[tuple[str, ...]]:
    yield describe("--entity-type users")  # nothing yet
    yield alter(f"{USER} orders {ADD} producer_byte_rate=4000000")
    yield describe(f"{USER} orders")
    yield alter(f"{USER} orders {ADD} consumer_byte_rate=8000000,request_percentage=1000000.5")
    yield describe(f"{USER} orders")
    yield alter(f"{USER} orders {ADD} controller_mutation_rate=0.5")
    yield describe("--entity-type users")
    yield alter(f"{USER} orders {DELETE} consumer_byte_rate,request_percentage")
    yield describe("--user orders")
    yield alter(f"{USER} orders {ADD} producer_byte_rate=5 {DELETE} controller_mutation_rate")
    yield describe("--user orders")
    yield alter("--user etl", ADD, "producer_byte_rate=12345678901234567890")  # larger than a LONG
    yield alter("--user etl", ADD, "producer_byte_rate=NaN")
    yield alter("--user etl", ADD, "consumer_byte_rate=0x1p4,controller_mutation_rate=5d")
    yield alter("--user etl", ADD, "request_percentage=1e-4,controller_mutation_rate=Infinity")
    yield describe("--user etl")
    yield alter("--user", "a b*~ü", ADD, "producer_byte_rate=[1024]")
    yield (*SERVER, "--describe", "--user", "a b*~ü")
    yield alter("--user file --add-config-file", config_file)
    yield describe("--user file")
    yield alter(f"--user-defaults {ADD} producer_byte_rate=1000000000000")
    yield describe("--user-defaults")
    yield describe("--entity-type users --entity-default")
    yield alter(f"--entity-type users --entity-default {DELETE} producer_byte_rate")
    yield describe("--user-defaults")


def _clients_and_both() -> Iterator[tuple[str, ...]]:
    yield alter(f"{CLIENT} app {ADD} consumer_byte_rate=1048576")
    yield alter(f"--client-defaults {ADD} controller_mutation_rate=1000000000")
    yield describe("--entity-type clients")
    yield describe("--client app")
    both = "--entity-type users --entity-name orders --entity-type clients --entity-name app"
    yield alter(f"{both} {ADD} producer_byte_rate=2048,consumer_byte_rate=4096")
    yield describe(both)
    yield describe("--user orders --client app")
    yield alter(f"--client app --user-defaults {ADD} producer_byte_rate=1000000000001")
    yield alter(f"--client-defaults --user orders {ADD} producer_byte_rate=77")
    yield describe("--entity-type users --entity-type clients")
    yield describe("--entity-type users --entity-name orders --entity-type clients")
    yield describe("--entity-type users")  # not those of user and client id
    yield alter(f"{both} {DELETE} producer_byte_rate,consumer_byte_rate")
    yield describe(both)
    yield alter(f"--client-defaults {DELETE} controller_mutation_rate")
    yield alter(f"--client app --user-defaults {DELETE} producer_byte_rate")


def _ips() -> Iterator[tuple[str, ...]]:
    yield alter(f"{IP} 192.0.2.1 {ADD} connection_creation_rate=50")
    yield alter(f"--ip-defaults {ADD} connection_creation_rate=2147483647")
    yield describe("--entity-type ips")
    yield describe("--ip 192.0.2.1")
    yield describe("--ip-defaults")
    yield alter(f"--ip 192.0.2.1 {ADD} connection_creation_rate=2147483648")
    yield alter(f"--ip 192.0.2.1 {ADD} connection_creation_rate=1.5")
    yield alter(f"--ip 192.0.2.1 {ADD} producer_byte_rate=5")
    yield alter("--ip", "not a host", ADD, "connection_creation_rate=5")
    yield alter(f"--ip 192.0.2.1 {DELETE} connection_creation_rate")
    yield alter(f"--entity-type ips --entity-default {DELETE} connection_creation_rate")
    yield describe("--entity-type ips")


def _mistakes() -> Iterator[tuple[str, ...]]:
    yield alter(f"--user orders {DELETE} consumer_byte_rate")  # it is not set
    yield alter(f"--user orders {DELETE} foo")
    yield alter(f"--user orders {ADD} foo=1")
    yield alter(f"--client app {ADD} foo=1")
    yield alter(f"--client app {DELETE} foo")
    yield alter(f"--user orders {ADD} producer_byte_rate=0")
    yield alter(f"--user orders {ADD} producer_byte_rate=-1")
    yield alter(f"--user orders {ADD} producer_byte_rate=1.5")
    yield alter(f"--user orders {ADD} producer_byte_rate=fast")
    yield alter(f"--user orders {ADD} producer_byte_rate")
    yield alter(f"--user orders {ADD} producer_byte_rate=1 {DELETE} producer_byte_rate")
    yield alter("--user orders")
    yield alter(f"--entity-type users {ADD} producer_byte_rate=1")
    yield alter(f"{USER} orders --client app {ADD} producer_byte_rate=1")
    yield alter(f"--user orders --ip 192.0.2.1 {ADD} producer_byte_rate=1")
    yield alter(f"{USER} a --entity-type users --entity-name b {ADD} producer_byte_rate=1")
    yield alter(f"--entity-type people --entity-name a {ADD} producer_byte_rate=1")
    yield alter("--user", "", ADD, "producer_byte_rate=1")
    yield describe("")
    yield describe("--entity-type users --entity-type ips")
    yield (*SERVER, *["--entity-type", "users"])
    yield ("--describe", "--entity-type", "users")


def _other_settings() -> Iterator[tuple[str, ...]]:
    scram = "SCRAM-SHA-256=[iterations=4096,password=secret]"
    yield alter("--user scrammed", ADD, scram)
    yield describe("--entity-type users")
    yield alter(f"--user scrammed {ADD} producer_byte_rate=10000,consumer_byte_rate=20000")
    yield describe("--user scrammed")
    yield alter("--user scrammed", ADD, f"{scram},producer_byte_rate=1")
    yield alter(f"--user scrammed {DELETE} producer_byte_rate,consumer_byte_rate")
    yield alter(f"--user scrammed {DELETE} SCRAM-SHA-256")
    yield alter(f"--entity-type brokers --entity-default {ADD} log.cleaner.threads=2")
    yield describe("--entity-type brokers --entity-default")
    yield alter(f"--entity-type brokers --entity-default {DELETE} log.cleaner.threads")
    yield alter(f"--entity-type brokers --entity-default {ADD} listeners=PLAINTEXT://a:1,foo=1")
    yield describe("--entity-type topics --entity-name nowhere")


def lines_on_a_number() -> Iterator[tuple[str, ...]]:
    """Lines on a setting of all brokers that is a number, from 1 on: ``{setting}`` stands for its name."""
    default, one = "--entity-type brokers --entity-default", "--entity-type brokers --entity-name 1"
    yield describe(default)
    yield alter(f"{default} {ADD} {{setting}}=7")
    yield describe(default)
    yield describe(one)
    yield describe("--entity-type brokers")
    for value in ("abc", "0", "-1", "99999999999", "5.5", "", "[1,2]"):
        yield alter(f"{default} {ADD} {{setting}}={value}")
    yield describe(default)
    yield alter(f"{default} {ADD} {{setting}}=9 {DELETE} {{setting}}")  # the same key twice
    yield alter(f"{one} {DELETE} {{setting}}")  # one broker has none
    yield alter(f"--entity-type brokers --entity-name x {ADD} {{setting}}=9")
    yield alter(f"{default} {ADD} {{setting}}")
    yield alter("--broker-defaults", ADD, "{setting}= 6 ")
    yield describe("--broker-defaults")
    yield alter(f"--broker-defaults {DELETE} {{setting}}")
    yield describe(default)
    yield alter(f"{default} {DELETE} {{setting}}")  # it is not set


def lines_of_the_gateway() -> Iterator[tuple[tuple[str, ...], str]]:
    """Lines that mean something to a gateway only, and what stands in what each of them writes."""
    default = "--entity-type brokers --entity-default"
    of_class, group = "client.quota.callback.class", "client.quota.callback.group.a.users"
    groups = f"{of_class}=kvota.callbacks.GroupQuotaCallback,{group}=[a,b]"
    done = "Completed updating default config for brokers in the cluster."
    yield alter(f"{default} {ADD} quota.window.num=7"), done
    yield alter(f"{default} {ADD} background.threads=9"), done  # the broker's, beside it
    yield describe(default), "  background.threads=9 "
    yield describe(default), "  quota.window.num=7 "
    mixed = "of these the gateway keeps [quota.window.num] and the broker [background.threads]"
    yield alter(f"{default} {ADD} quota.window.num=8,background.threads=8"), mixed
    one = f"--entity-type brokers --entity-name 1 {ADD}"
    yield alter(f"{one} quota.window.num=8"), "Cannot update these configs for one broker"
    yield (
        alter(f"{default} {ADD} {of_class}=a.B"),
        f"Invalid value a.B for configuration {of_class}",
    )
    yield alter(f"{default} {ADD} {groups}"), done
    yield describe(default), f"  {group}=a,b sensitive=false"
    yield alter(f"{default} {DELETE} {group}"), "there is no group"
    yield alter(f"{default} {DELETE} background.threads"), done
    yield describe(default), f"  {of_class}=kvota.callbacks.GroupQuotaCallback sensitive=false"
    yield alter(f"{default} {DELETE} {of_class},{group},quota.window.num"), done


def lines_of_rights() -> Iterator[tuple[str, ...]]:
    """What takes a right; whoever has it leaves nothing behind."""
    both = "--user orders --client app"
    of_all = "--entity-type brokers --entity-default"
    yield alter(f"{USER} orders {ADD} producer_byte_rate=4000000000")
    yield alter(f"--client-defaults {ADD} consumer_byte_rate=4000000000,request_percentage=1000000")
    yield alter(f"{both} {ADD} controller_mutation_rate=1000000")
    yield alter(f"--ip 192.0.2.1 {ADD} connection_creation_rate=1000000")
    yield describe("--entity-type users")
    yield describe("--client-defaults")
    yield describe(both)
    yield describe("--entity-type ips")
    yield alter(
        f"--user orders {ADD} producer_byte_rate=0"
    )  # who has no right is not told of mistakes
    yield alter(f"--user orders {ADD} foo=1")
    yield alter(f"--user orders {DELETE} consumer_byte_rate")
    yield alter(f"{of_all} {ADD} background.threads=9")
    yield describe(of_all)
    yield alter(f"{of_all} {DELETE} background.threads")
    yield alter(f"{both} {DELETE} controller_mutation_rate")
    yield alter(f"--client-defaults {DELETE} consumer_byte_rate,request_percentage")
    yield alter(f"{USER} orders {DELETE} producer_byte_rate")
    yield alter(f"--ip 192.0.2.1 {DELETE} connection_creation_rate")
    yield describe("--entity-type users --entity-type clients")


def lines_of_arguments() -> Iterator[tuple[str, ...]]:
    """How the tool reads its arguments, whatever a cluster says; and topics, of which one is named orders."""
    yield from _arguments()
    yield from _other_credentials()
    yield from _brokers()
    yield from _topics()


def _arguments() -> Iterator[tuple[str, ...]]:
    yield alter(f"--user a --user b {ADD} producer_byte_rate=1")
    yield alter(f"--user a {ADD} producer_byte_rate=1 {ADD} consumer_byte_rate=1")
    yield alter(f"--user a {ADD} producer_byte_rate=1,,consumer_byte_rate=1")
    yield alter("--user a", ADD, "producer_byte_rate = 3 , consumer_byte_rate=[4],")
    yield alter(f"--user a {DELETE} producer_byte_rate,producer_byte_rate")
    yield alter(f"--user a {DELETE} producer_byte_rate {DELETE} consumer_byte_rate")
    yield alter(f"--user=a {ADD}=producer_byte_rate=7")
    yield describe("--user=a")
    yield alter(f"--user a {ADD} p!=7")
    yield alter(f"--user a {ADD} producer_byte_rate=1 --add-config-file nowhere")
    yield alter("--user a --add-config-file nowhere")
    yield describe("--user a --alter")
    yield describe(f"--user a {ADD} producer_byte_rate=1")
    yield (*SERVER, "--describe", "--ip", "not a host")
    yield describe("--user a --entity-type clients")
    yield describe("--entity-type users --entity-name a --entity-name b")


def _other_credentials() -> Iterator[tuple[str, ...]]:
    yield alter(f"--user a {ADD} SCRAM-SHA-256=[iterations=1,password=secret]")
    yield alter(f"--user a {ADD} SCRAM-SHA-256=secret")
    yield alter(f"--user a {ADD} SCRAM-SHA-512=[password=secret]")
    yield describe("--user a")
    yield alter(f"--user a --client b {ADD} SCRAM-SHA-512=[password=secret]")
    yield alter(f"--user-defaults {ADD} SCRAM-SHA-512=[password=secret]")
    yield alter(f"--user a {DELETE} SCRAM-SHA-512,producer_byte_rate")
    yield alter(f"--user a {DELETE} SCRAM-SHA-256")  # it is not set


def _brokers() -> Iterator[tuple[str, ...]]:
    yield describe("--broker x")
    yield describe("--broker 99")
    yield alter(f"--broker-defaults {DELETE} foo")
    yield alter(f"--broker-defaults {ADD} foo=1")
    yield describe("--broker-defaults")
    yield alter(f"--broker-defaults {DELETE} foo")
    yield alter(f"--broker 1 {ADD} log.cleaner.threads=3,log.cleaner.threads=2")
    yield alter(f"--broker 1 {ADD} listener.name.plaintext.ssl.truststore.type=JKS")
    yield describe("--broker 1")
    yield alter(f"--broker 1 {DELETE} listener.name.plaintext.ssl.truststore.type")


def _topics() -> Iterator[tuple[str, ...]]:
    yield describe("--topic orders")
    yield describe("--topic orders --all")
    yield alter("--topic orders", ADD, "cleanup.policy=[compact,delete],retention.ms=5")
    yield alter(f"--topic orders {ADD} retention.ms=soon")
    yield alter(f"--topic orders {DELETE} foo")
    yield alter(f"--topic orders {DELETE} segment.ms")
    yield describe("--entity-type topics")
    yield describe("--topic nowhere --all")
    yield describe("--entity-type topics --entity-default")
    yield alter(f"--topic nowhere {ADD} retention.ms=5")
    yield alter(f"--entity-type topics --entity-default {ADD} retention.ms=5")
    yield describe("--topic a/b")
