"""The messages about a wrong quotas.toml: one file per way to be wrong, one expected text each.

A new or changed message: look at what the test prints, and if it is good, put it into the .txt file.
"""

from pathlib import Path

import pytest

from kvota.model.errors import ConfigurationError
from kvota.store.quotas_file import load_quotas

FOLDER = Path(__file__).parent
CASES = sorted(path.stem for path in FOLDER.glob("*.toml"))


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_file_is_answered_with_exactly_this(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FOLDER)

    with pytest.raises(ConfigurationError) as caught:
        load_quotas(Path(f"{case}.toml"))

    assert f"{caught.value}\n" == Path(f"{case}.txt").read_text()


def test_every_expected_text_has_its_file() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.txt")) == CASES
