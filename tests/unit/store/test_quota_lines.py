"""Where an entity stands in its file; no line is better than a wrong one."""

from pathlib import Path

import pytest

from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.store.quota_lines import quota_lines
from kvota.store.quotas_file import load_quotas

TEXT = """# who may what

[[quota]]
user = "a"
producer_byte_rate = 1000

  [[ quota ]]   # comment
user_default = true
client_id = "c"
consumer_byte_rate = 1000
"""


def test_each_entity_stands_where_its_table_begins(tmp_path: Path) -> None:
    path = tmp_path / "quotas.toml"
    path.write_text(TEXT)

    assert quota_lines(path, load_quotas(path)) == {
        QuotaEntity(user="a"): 3,
        QuotaEntity(user=DEFAULT, client_id="c"): 7,
    }


@pytest.mark.parametrize(
    "text",
    [
        'quota = [{user = "a", producer_byte_rate = 1}]',
        TEXT + '[[quota]]\nuser = """\n[[quota]]\n"""\nproducer_byte_rate = 1\n',
    ],
)
def test_where_tables_are_not_found_one_by_one_there_are_no_lines(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "quotas.toml"
    path.write_text(text)

    assert quota_lines(path, load_quotas(path)) == {}


def test_a_file_that_is_gone_has_no_lines(tmp_path: Path) -> None:
    path = tmp_path / "quotas.toml"
    path.write_text(TEXT)
    quotas = load_quotas(path)
    path.unlink()

    assert quota_lines(path, quotas) == {}
