"""Where the cache is."""

from pathlib import Path

import pytest

from kvota.files.cache import cache_folder


@pytest.mark.parametrize(
    ("own", "shared", "folder"),
    [
        ("/a/kvota", "/b", "/a/kvota"),
        ("", "/b", "/b/kvota"),
        ("", "not/absolute", "/home/me/.cache/kvota"),
        ("", "", "/home/me/.cache/kvota"),
    ],
)
def test_the_cache_is_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, own: str, shared: str, folder: str
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("KVOTA_CACHE", own)
    monkeypatch.setenv("XDG_CACHE_HOME", shared)

    assert cache_folder() == Path(folder)
