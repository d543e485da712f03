"""quotas.toml: what it means, and that writing it is the reverse of reading it."""

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.errors import UnreachableError, UsageError
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.store.quotas_file import dump_quotas, load_quotas, write_quotas

PRODUCE, FETCH, MUTATION = QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.CONTROLLER_MUTATION


def load_text(tmp_path: Path, text: str) -> ConfiguredQuotas:
    path = tmp_path / "quotas.toml"
    path.write_text(text)
    return load_quotas(path)


def test_every_kind_of_entity_and_every_key_is_read(tmp_path: Path) -> None:
    table = load_text(
        tmp_path,
        """
        [[quota]]
        user = "a"
        client_id = "c"
        producer_byte_rate = "8MB/s"
        consumer_byte_rate = 1000
        controller_mutation_rate = "5/s"

        [[quota]]
        user = "a"
        client_id_default = true
        producer_byte_rate = 2.5e3

        [[quota]]
        user_default = true
        client_id_default = true
        consumer_byte_rate = "1MiB/s"

        [[quota]]
        user_default = true
        controller_mutation_rate = 0.5

        [[quota]]
        client_id = "c"
        producer_byte_rate = "512 KiB / s"
        """,
    )

    assert table.entries() == {
        QuotaEntity("a", "c"): {PRODUCE: 8e6, FETCH: 1000.0, MUTATION: 5.0},
        QuotaEntity("a", DEFAULT): {PRODUCE: 2500.0},
        QuotaEntity(DEFAULT, DEFAULT): {FETCH: 1048576.0},
        QuotaEntity(DEFAULT, None): {MUTATION: 0.5},
        QuotaEntity(None, "c"): {PRODUCE: 524288.0},
    }


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "quota = []\n"])
def test_a_file_without_quotas_means_no_quotas(text: str, tmp_path: Path) -> None:
    assert load_text(tmp_path, text).entries() == {}


def test_a_user_called_like_the_default_is_a_user(tmp_path: Path) -> None:
    text = '[[quota]]\nuser = "<default>"\nproducer_byte_rate = 1\n'

    assert load_text(tmp_path, text).entries() == {QuotaEntity("<default>"): {PRODUCE: 1.0}}


def test_a_fraction_that_kafka_forgives_is_kept_as_given(tmp_path: Path) -> None:
    text = '[[quota]]\nuser = "a"\nproducer_byte_rate = 1235.0000001\n'

    assert load_text(tmp_path, text).entries() == {QuotaEntity("a"): {PRODUCE: 1235.0000001}}


def test_limits_are_written_with_units_where_these_are_exact() -> None:
    table = ConfiguredQuotas(
        {
            QuotaEntity("a", DEFAULT): {PRODUCE: 8e6, FETCH: 8388608.0, MUTATION: 5.0},
            QuotaEntity(None, "c"): {PRODUCE: 1234567.0, FETCH: 1500.0, MUTATION: 0.1},
        }
    )

    assert dump_quotas(table, heading="Made by a plan.\nSee the report.") == (
        "# Made by a plan.\n"
        "# See the report.\n"
        "\n"
        "[[quota]]\n"
        'user = "a"\n'
        "client_id_default = true\n"
        'producer_byte_rate = "8MB/s"\n'
        'consumer_byte_rate = "8MiB/s"\n'
        'controller_mutation_rate = "5/s"\n'
        "\n"
        "[[quota]]\n"
        'client_id = "c"\n'
        'producer_byte_rate = "1234567B/s"\n'
        'consumer_byte_rate = "1.5KB/s"\n'
        'controller_mutation_rate = "0.1/s"\n'
    )


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
PARTS = st.one_of(st.none(), st.just(DEFAULT), NAMES)
ENTITIES = (
    st.tuples(PARTS, PARTS)
    .filter(lambda parts: parts != (None, None))
    .map(lambda parts: QuotaEntity(*parts))
)
BYTE_RATES = st.one_of(
    st.integers(1, 2**53),
    st.integers(1, 2**23).map(lambda size: size * 2**30),
    st.integers(1, 9_000_000).map(lambda size: size * 10**12),
    st.integers(1, 10**6).map(lambda size: size + 1e-7),
    st.just(2**63),
).map(float)
RATES = st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_nan=False)
LIMITS = st.fixed_dictionaries(
    {}, optional={PRODUCE: BYTE_RATES, FETCH: BYTE_RATES, MUTATION: RATES}
).filter(bool)
TABLES = st.dictionaries(ENTITIES, LIMITS, max_size=5).map(ConfiguredQuotas)


@given(table=TABLES, heading=st.none() | st.text(st.characters(exclude_categories=["Cs"])))
def test_what_is_written_is_read_as_exactly_the_same_table(
    tmp_path_factory: pytest.TempPathFactory, table: ConfiguredQuotas, heading: str | None
) -> None:
    path = tmp_path_factory.getbasetemp() / "round-trip.toml"

    write_quotas(path, table, heading=heading)
    read = load_quotas(path)

    assert read.entries() == table.entries()
    assert list(read.entries()) == list(table.entries())


@pytest.mark.parametrize(
    ("entity", "limits", "message"),
    [
        (QuotaEntity("a"), {PRODUCE: 0.0}, "producer_byte_rate of .*'a': 0.0 is not above 0"),
        (QuotaEntity("a"), {PRODUCE: 0.5}, "is not a whole number"),
        (QuotaEntity("a"), {MUTATION: float("inf")}, "inf is not a finite number"),
        (QuotaEntity("a"), {QuotaType.PRODUCER_ID: 5.0}, "PRODUCER_ID quota .* has no key"),
        (QuotaEntity("\udcff"), {PRODUCE: 5.0}, "is not Unicode text"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(
    entity: QuotaEntity, limits: dict[QuotaType, float], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        dump_quotas(ConfiguredQuotas({entity: limits}))


TABLE = ConfiguredQuotas({QuotaEntity("a"): {PRODUCE: 5e6}})


def test_writing_keeps_the_permissions_and_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real.toml"
    real.write_text("")
    real.chmod(0o640)
    link = tmp_path / "quotas.toml"
    link.symlink_to(real)

    write_quotas(link, TABLE)

    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert load_quotas(real).entries() == TABLE.entries()


def test_a_disk_that_is_full_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "quotas.toml"
    path.write_text("# old\n")
    (tmp_path / "quotas.toml.tmp").symlink_to("/dev/full")

    with pytest.raises(UnreachableError, match="could not be written: No space left on device"):
        write_quotas(path, TABLE)

    assert [path.name for path in tmp_path.iterdir()] == ["quotas.toml"]
    assert path.read_text() == "# old\n"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match=r"none/quotas\.toml could not be written: No such"):
        write_quotas(tmp_path / "none" / "quotas.toml", TABLE)
