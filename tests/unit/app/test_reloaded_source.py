"""SIGHUP and the source of the quotas: another one needs a restart, and until then nothing speaks of it."""

import time
from pathlib import Path

import pytest

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.model.client_quotas import ClientQuotas
from kvota.model.quota_entity import QuotaEntity
from kvota.store.quota_document import QuotaDocument

pytestmark = pytest.mark.timeout(150)


def config(first_port: int, source: str, more: str = "") -> str:
    toml = gateway_toml(upstream="127.0.0.2:9", first_port=first_port, node_ids="1", source=source)
    return toml.replace("[quotas]\n", f"[quotas]\n{more}\n")


@pytest.mark.parametrize(
    ("source", "more", "place"),
    [
        ("file", 'file = "other.json"', "quotas.json"),
        ("topic", 'topic = "other"', "topic kvota-quotas"),
    ],
)
def test_what_is_said_is_where_the_quotas_are(
    tmp_path_factory: pytest.TempPathFactory, source: str, more: str, place: str
) -> None:
    folder, port = tmp_path_factory.mktemp(source), free_port_range(3)
    process = GatewayProcess(folder, config=config(port, source), quotas="")
    with process:
        assert f"quotas of 0 entities from {place}; records" in process.log
        written = '[[quota]]\nuser = "a"\nproducer_byte_rate = 1000\n'
        for changed in (config(port, source, more), config(port, "toml")):
            before = len(process.log)
            process.reload(written, changed)
            said = process.log[before:]

            assert "quotas.source is another one now; it needs a restart" in said
            assert f"quotas of 0 entities from {place}\n" in said
            assert "other" not in said.replace("another", "")


def test_what_is_set_dynamically_goes_before_the_file(tmp_path: Path) -> None:
    port = free_port_range(3)
    document = QuotaDocument(settings={"quota.window.num": "5"})
    (tmp_path / "quotas.json").write_bytes(document.content())

    def with_windows(num: int, seconds: int) -> str:
        windows = f'"quota.window.num" = {num}\n"quota.window.size.seconds" = {seconds}\n'
        return config(port, "file") + f"\n[kafka]\n{windows}"

    with GatewayProcess(tmp_path, config=with_windows(7, 1), quotas="") as process:
        assert "counted by: PRODUCE sampled_rate (5 x 1000 ms)" in process.log
        process.reload("", with_windows(8, 2))
        assert "PRODUCE: sampled_rate (5 x 1000 ms) -> sampled_rate (5 x 2000 ms)" in process.log
        process.reload("", with_windows(9, 2))
        assert "SIGHUP: nothing has changed" in process.log


def test_a_document_that_was_edited_by_hand_is_read_again(tmp_path: Path) -> None:
    port = free_port_range(3)
    file = tmp_path / "quotas.json"
    edited = ClientQuotas({QuotaEntity("byhand"): {"producer_byte_rate": 7.0}})
    with GatewayProcess(tmp_path, config=config(port, "file"), quotas="") as process:

        def said_at_reload(warning: str = "") -> str:
            """A warning comes behind the line that a reload waits for."""
            before = len(process.log)
            process.reload("")
            end = time.monotonic() + 30
            while warning not in process.log[before:] and time.monotonic() < end:
                time.sleep(0.02)
            return process.log[before:]

        assert "SIGHUP: nothing has changed" in said_at_reload()
        file.write_bytes(QuotaDocument(edited, {"quota.window.num": "5"}).content())
        said = said_at_reload()
        taken = "quotas.json has been written by somebody else: 1 values of quotas and 1 settings are others"
        assert f"SIGHUP: {taken}" in said
        assert "nothing has changed" not in said
        assert "quotas of 1 entities from quotas.json" in said
        assert "SIGHUP: nothing has changed" in said_at_reload()

        file.write_bytes(b"{")
        warning = "WARNING SIGHUP: quotas.json has been written by somebody else, and cannot be"
        said = said_at_reload(warning)
        assert warning in said
        assert "quotas of 1 entities from quotas.json" in said


def test_quotas_that_are_not_the_engines_are_said_when_they_are_others(tmp_path: Path) -> None:
    def written(ids: str, connections: str) -> str:
        of_ip = f'[[quota]]\nip = "10.0.0.7"\nconnection_creation_rate = "{connections}"\n'
        of_user = f'[[quota]]\nuser = "batch"\nproducer_ids_rate = {ids}\n'
        return (ids and of_user) + (connections and of_ip)

    port = free_port_range(3)
    with GatewayProcess(tmp_path, config=config(port, "toml"), quotas="") as process:

        def said_at(ids: str, connections: str) -> list[str]:
            before = len(process.log)
            process.reload(written(ids, connections))
            lines = process.log[before:].splitlines()
            return [line.partition("SIGHUP: ")[2] for line in lines if " -> " in line]

        rate = "connection_creation_rate"
        assert said_at("100", "5/s") == [
            "+ user-principal 'batch' producer_ids_rate none -> 100",
            f"+ ip '10.0.0.7' {rate} none -> 5/s",
        ]
        assert said_at("150", "5/s") == ["~ user-principal 'batch' producer_ids_rate 100 -> 150"]
        assert said_at("", "7/s") == [
            f"~ ip '10.0.0.7' {rate} 5/s -> 7/s",
            "- user-principal 'batch' producer_ids_rate 150 -> none",
        ]
        assert "nothing has changed" not in process.log
