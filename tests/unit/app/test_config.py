"""gateway.toml: what it means, and one file per way to be wrong with the message it gets."""

import socket
from pathlib import Path

import pytest

from kvota.app.config import GatewayConfig, load_files, read_config
from kvota.app.gateway_process import gateway_toml
from kvota.app.quota_settings import QuotaSourceKind
from kvota.engine import QuotaWindow
from kvota.engine.layered_bloom import Layering
from kvota.gateway.settings import GatewayLimits, ProducerIdSettings
from kvota.model.bucket_settings import BucketSettings
from kvota.model.errors import ConfigurationError
from kvota.model.quota_type import QuotaType
from kvota.session.quota_admins import QuotaAdmins
from kvota.session.settings import ConnectionSettings
from kvota.session.topology import Advertised
from kvota.wire.error_code import ErrorCode

GOLDEN = Path(__file__).parents[2] / "golden" / "gateway_toml"
UPSTREAM = '[upstream]\nbootstrap_servers = ["kafka-1:9092"]\n'


def written(folder: Path, text: str, quotas: str = "") -> Path:
    path = folder / "gateway.toml"
    path.write_text(text)
    (folder / "quotas.toml").write_text(quotas)
    return path


def load_config(path: Path) -> GatewayConfig:
    config, faults = read_config(path)
    if faults:
        raise ConfigurationError(faults)
    return config


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.toml")), ids=lambda path: path.stem)
def test_a_faulty_file_gets_this_message(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN)

    with pytest.raises(ConfigurationError) as caught:
        load_config(Path(path.name))

    assert str(caught.value) + "\n" == path.with_suffix(".txt").read_text()


def test_every_expected_message_has_its_file() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {
        path.stem for path in GOLDEN.glob("*.toml")
    }


def test_only_the_upstream_must_be_said(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, UPSTREAM))

    assert config.name == "kvota"
    assert config.gateway.upstream == (("kafka-1", 9092),)
    assert (config.gateway.host, config.gateway.bootstrap_port) == ("127.0.0.1", 9192)
    assert config.gateway.advertised == Advertised(
        host="127.0.0.1", node_port_base=9200, node_id_min=0, node_id_max=9
    )
    assert config.gateway.limits == GatewayLimits()
    assert config.gateway.connection == ConnectionSettings()
    assert config.quotas.file == tmp_path / "quotas.toml"
    assert (config.record.folder, config.record.topic) == (None, None)
    assert set(config.windows.values()) == {QuotaWindow(11, 1000)}
    assert config.quotas.buckets == {}


def test_every_setting_arrives_where_it_counts(tmp_path: Path) -> None:
    config = load_config(
        written(
            tmp_path,
            """
            [gateway]
            name = "eu-1"
            host = "0.0.0.0"
            advertised_host = "gateway.example"
            bootstrap_port = 1000
            node_port_base = 2000
            node_ids = "3-5"
            [upstream]
            bootstrap_servers = "kafka-1:9092, [::1]:9093"
            connect_timeout = "3s"
            [quotas]
            file = "other.toml"
            [quotas.FETCH]
            enforce = true
            algorithm = "token_bucket"
            burst = "2s"
            debt_max = "3s"
            [quotas.PRODUCE]
            enforce = false
            algorithm = "sampled_rate"
            [record]
            folder = "events"
            topic = "kvota.events"
            bytes_max = "1GiB"
            age_max = "2d"
            flush_rows = 7
            flush_interval = "250ms"
            buffer_rows = 18
            [kafka]
            "quota.window.num" = 2
            "quota.window.size.seconds" = 3
            "controller.quota.window.num" = 4
            "controller.quota.window.size.seconds" = 5
            "connections.max.idle.ms" = 20_000
            "max.connections.per.ip" = 100
            "max.connections.per.ip.overrides" = "127.0.0.1:200, [::1]:0,localhost:7"
            [log]
            format = "json"
            [limits]
            connections_max = 10
            request_bytes_max = "11MiB"
            announced_bytes_max = 12
            frame_time = "13ms"
            mute_time_max = "14s"
            drain_time = "1m"
            write_buffer_bytes = "16KB"
            in_flight_max = 17
            mutation_partitions_max = 18
            default_partitions = 19
            """,
        )
    )

    gateway, record = config.gateway, config.record
    assert (config.name, config.log_format) == ("eu-1", "json")
    assert (gateway.host, gateway.bootstrap_port) == ("0.0.0.0", 1000)
    assert gateway.advertised == Advertised(
        host="gateway.example", node_port_base=2000, node_id_min=3, node_id_max=5
    )
    assert gateway.upstream == (("kafka-1", 9092), ("::1", 9093))
    assert gateway.limits == GatewayLimits(
        connections_max=10,
        connections_per_ip_max=100,
        connections_per_ip_overrides=gateway.limits.connections_per_ip_overrides,
        announced_bytes_max=12,
        idle_ms=20_000,
        frame_ms=13,
        drain_ms=60_000,
        write_buffer_bytes=16_000,
        connect_ms=3_000,
    )
    assert gateway.limits.connections_per_ip_overrides["127.0.0.1"] == 7  # a name's, looked up
    assert gateway.limits.connections_per_ip_overrides["::1"] in {0, 7}
    assert gateway.connection == ConnectionSettings(
        enforced=frozenset({QuotaType.FETCH}),
        mute_ms_max=14_000,
        request_bytes_max=11 * 2**20,
        in_flight_max=17,
        mutation_partitions_max=18,
        default_partitions=19,
    )
    assert config.quotas.buckets == {
        QuotaType.FETCH: BucketSettings(burst_ms=2_000, debt_max_ms=3_000)
    }
    assert config.quotas.file == tmp_path / "other.toml"
    assert (record.folder, record.folder_bytes_max) == (tmp_path / "events", 2**30)
    assert record.topic == "kvota.events"
    assert (record.age_s_max, record.flush_interval_s) == (172_800, 0.25)
    assert (record.flush_rows, record.buffer_rows) == (7, 18)
    assert config.windows[QuotaType.PRODUCE] == QuotaWindow(2, 3_000)
    assert config.windows[QuotaType.FETCH] == QuotaWindow(2, 3_000)
    assert config.windows[QuotaType.CONTROLLER_MUTATION] == QuotaWindow(4, 5_000)


def test_kafkas_property_names_may_stand_without_quotes(tmp_path: Path) -> None:
    config = load_config(
        written(
            tmp_path, f"{UPSTREAM}[kafka]\nquota.window.num = 2\nquota.window.size.seconds = 3\n"
        )
    )

    assert config.windows[QuotaType.FETCH] == QuotaWindow(2, 3_000)


def test_the_faults_of_both_files_come_at_once(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        UPSTREAM + '[limits]\nframe_time = 3\n[gateway]\nnode_ids = "x"\n',
        '[[quota]]\nuser = "a"\nproducer_byte_rate = "lots"\n',
    )

    with pytest.raises(ConfigurationError) as caught:
        load_files(path)

    places = [fault.place.removeprefix(f"{tmp_path}/") for fault in caught.value.faults]
    assert places == [
        "gateway.toml:4: limits.frame_time",
        "gateway.toml:6: gateway.node_ids",
        "quotas.toml:3: quota[0].producer_byte_rate",
    ]


def test_a_quotas_file_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    path = written(tmp_path, UPSTREAM)
    (tmp_path / "quotas.toml").unlink()

    with pytest.raises(ConfigurationError, match=r"quotas.toml: there is no such file"):
        load_files(path)


def test_files_without_fault_give_configuration_and_quotas(tmp_path: Path) -> None:
    quotas = '[[quota]]\nuser = "a"\nproducer_byte_rate = "1MB/s"\n'

    config, table = load_files(written(tmp_path, UPSTREAM, quotas))

    assert config.gateway.upstream == (("kafka-1", 9092),)
    assert table is not None
    assert len(table.entries()) == 1


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
    ],
)
def test_without_a_list_who_is_on_this_machine_may_alter_quotas_where_only_they_can_connect(
    tmp_path: Path, host: str, *, loopback: bool
) -> None:
    listens = f'[gateway]\nhost = "{host}"\nadvertised_host = "gateway"\n'

    config = load_config(written(tmp_path, UPSTREAM + listens))

    assert config.quotas.admins == QuotaAdmins(loopback=loopback)


def test_a_list_of_who_may_alter_quotas_takes_the_place_of_the_default(tmp_path: Path) -> None:
    admins = '[quotas.admins]\nusers = ["admin"]\nhosts = ["10.1.2.3", "::1"]\n'

    config = load_config(written(tmp_path, UPSTREAM + admins))

    hosts = frozenset({"10.1.2.3", "::1"})
    assert config.quotas.admins == QuotaAdmins(users=frozenset({"admin"}), hosts=hosts)


def test_a_store_of_the_gateways_own_is_not_read_with_the_settings(tmp_path: Path) -> None:
    config, quotas = load_files(written(tmp_path, UPSTREAM + '[quotas]\nsource = "file"\n', "[["))

    assert quotas is None
    assert config.quotas.source is QuotaSourceKind.FILE
    assert config.quotas.file == tmp_path / "quotas.json"


def test_the_toml_that_tests_write_is_what_they_mean(tmp_path: Path) -> None:
    text = gateway_toml(
        upstream="a:1,b:2",
        first_port=4000,
        node_ids="1-3",
        enforce={"PRODUCE": True, "FETCH": False},
        buckets={QuotaType.FETCH: BucketSettings(burst_ms=500, debt_max_ms=0)},
        record="events",
        kafka={"quota.window.num": 2},
        limits={"frame_time": "1s", "connections_max": 5},
    )

    config = load_config(written(tmp_path, text))

    assert config.gateway.upstream == (("a", 1), ("b", 2))
    assert config.gateway.advertised.node_port_base == 4001
    assert config.gateway.connection.enforced == {QuotaType.PRODUCE}
    assert config.quotas.buckets == {QuotaType.FETCH: BucketSettings(burst_ms=500, debt_max_ms=0)}
    assert config.gateway.limits.frame_ms == 1_000
    assert config.windows[QuotaType.FETCH].samples == 2


def test_a_name_without_an_address_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def finds_nothing(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", finds_nothing)
    text = '[kafka]\n"max.connections.per.ip.overrides" = "gone.example:5"\n'

    with pytest.raises(ConfigurationError, match="has no address"):
        load_config(written(tmp_path, UPSTREAM + text))


def test_the_quota_on_producer_ids_has_a_window_layers_and_an_answer_of_its_own(
    tmp_path: Path,
) -> None:
    text = UPSTREAM + (
        '[quotas.PRODUCER_ID]\nenforce = true\nrefuse_with = "NOT_LEADER_OR_FOLLOWER"\nsaved = "ids"\n'
        '[kafka]\n"producer.id.quota.window.size.seconds" = 60\n'
        '"producer.id.quota.cache.layer.count" = 2\n'
        '"producer.id.quota.cache.false.positive.rate" = 0.05\n'
        '"producer.id.quota.cache.cleanup.scheduler.interval.ms" = 5000\n'
    )
    config = load_config(written(tmp_path, text))

    layering = Layering(window_ms=60_000, layers=2, false_positive_rate=0.05)
    assert config.gateway.producer_ids == ProducerIdSettings(
        layering=layering, sweep_ms=5_000, refuses_with=ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    assert QuotaType.PRODUCER_ID in config.gateway.connection.enforced
    assert config.quotas.saved_ids == tmp_path / "ids"
    assert load_config(written(tmp_path, UPSTREAM)).gateway.producer_ids == ProducerIdSettings()


def test_balancers_stand_at_each_listener(tmp_path: Path) -> None:
    lines = (
        '[gateway]\nproxy_protocol_from = ["10.0.0.7", "fd00::/8"]\n'
        "[listeners.inside]\nbootstrap_port = 9392\nnode_port_base = 9400\n"
    )

    first, second = load_config(written(tmp_path, lines + UPSTREAM)).gateway.listeners

    assert [str(network) for network in first.proxied_by] == ["10.0.0.7/32", "fd00::/8"]
    assert second.proxied_by == ()


def test_whether_clients_addresses_are_told_upstream_is_read(tmp_path: Path) -> None:
    assert not load_config(written(tmp_path, UPSTREAM)).gateway.tells_clients
    told = load_config(written(tmp_path, f"{UPSTREAM}proxy_protocol = true\n"))
    assert told.gateway.tells_clients


@pytest.mark.parametrize("value", ["[]", "true", '"10.0.0.7"', '["kafka.example"]', "[1]", '["10.0.0.7/16"]'])  # fmt: skip
def test_what_is_no_network_is_refused(tmp_path: Path, value: str) -> None:
    path = written(tmp_path, f"[gateway]\nproxy_protocol_from = {value}\n{UPSTREAM}")

    with pytest.raises(ConfigurationError, match="a list of addresses and networks"):
        load_config(path)


def test_the_claim_and_the_time_of_logins_are_read(tmp_path: Path) -> None:
    lines = '[kafka]\n"sasl.oauthbearer.sub.claim.name" = "user"\n[limits]\nlogin_time = "5s"\n'

    config = load_config(written(tmp_path, lines + UPSTREAM))

    assert config.kafka.name_claim == "user"
    assert config.gateway.limits.login_ms == 5_000
    assert load_config(written(tmp_path, UPSTREAM)).kafka.name_claim == "sub"


def test_whose_quotas_hold_behind_a_login_without_a_name_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, f'[logins]\nGSSAPI = "kerberos"\n{UPSTREAM}')

    assert load_config(path).users_of_logins == {"GSSAPI": "kerberos"}


@pytest.mark.parametrize(
    ("interval_s", "told_ms_max"), [(1, 3_000), (4, 12_000), (60, 30_000), (0, 30_000)]
)
def test_while_disks_are_full_nobody_is_told_more_than_three_looks_or_the_longest_mute(
    interval_s: int, told_ms_max: int, tmp_path: Path
) -> None:
    prefix = "client.quota.callback.static"
    lines = f"""
        [kafka]
        "{prefix}.kafka.admin.bootstrap.servers" = "kafka-1:9092"
        "{prefix}.storage.per.volume.limit.min.available.bytes" = 1
        "{prefix}.storage.check-interval" = {interval_s}
        [limits]
        mute_time_max = "30s"
    """

    connection = load_config(written(tmp_path, UPSTREAM + lines)).gateway.connection

    assert connection.factor_told_ms_max == told_ms_max
