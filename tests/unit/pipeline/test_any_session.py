"""What is read of anybody's session."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession

from kvota.model.errors import UsageError
from kvota.pipeline.any_session import is_connect, refuse_connect, size_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64m", 64 << 20),
        ("67108864b", 64 << 20),
        ("1 GB", 1 << 30),
        ("2kib", 2048),
        ("10", 10),
        ("-1", 0),
        ("", 0),
    ],
)
def test_sizes_are_read_as_spark_writes_them(text: str, size: int) -> None:
    assert size_bytes(text) == size


def test_what_needs_a_jvm_is_refused_over_spark_connect() -> None:
    far, here = object.__new__(ConnectSession), object.__new__(SparkSession)

    assert is_connect(far)
    assert not is_connect(here)
    refuse_connect(here, "looking")
    with pytest.raises(UsageError, match="looking cannot be done over Spark Connect"):
        refuse_connect(far, "looking")
