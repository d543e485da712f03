"""The lines of ``kvota status`` and ``kvota explain``: 80 columns, worst first, nothing hidden silently."""

import argparse
import io
import sys
import time
from typing import Any

import pytest

from kvota.app.amounts import amount_of_limit
from kvota.app.cli.explain import _near, explain_lines
from kvota.app.cli.status import _show, status_lines
from kvota.app.text_width import columns_of
from kvota.model.quota_type import QuotaType

AT_MS = 1_790_000_000_000


def tenant(**changes: Any) -> dict[str, Any]:
    return {
        "tags": "client-id=,user=analytics",
        "user": "analytics",
        "client_id": None,
        "quota_type": "PRODUCE",
        "node_id": 1,
        "unit": "bytes/s",
        "enforced": True,
        "rate_per_s": 5_600_000.0,
        "limit_per_s": 2_360_000.0,
        "share": 2.37,
        "wait_ms": 1_400,
        "throttled_until_ms": AT_MS + 1_400,
        "connections": 3,
        "muted_connections": 1,
        "mute_left_ms": 1_400,
        "requests_waiting": 0,
        "last_refusal_ms": AT_MS,
        "last_decision_ms": AT_MS,
        "limit_from": "/etc/kvota/quotas.toml:4",
        "algorithm": "sampled_rate",
        "blocked": False,
        "factor": 1.0,
        "tokens": None,
        "debt_ms": None,
    } | changes


def lines(*tenants: dict[str, Any], top: int = 20, of: int | None = None) -> list[str]:
    """Of a gateway that tells of the first ``top`` counters, and how many there are."""
    return status_lines(status_of(*tenants, of=of), top=top)


def status_of(*tenants: dict[str, Any], of: int | None = None) -> dict[str, Any]:
    return {
        "gateway": "kvota",
        "at_ms": AT_MS,
        "connections": 12,
        "enforced": ["PRODUCE"],
        "counters": len(tenants) if of is None else of,
        "tenants": list(tenants),
    }


def test_producer_ids_are_summed_up_below() -> None:
    status = {
        "gateway": "kvota",
        "at_ms": AT_MS,
        "connections": 12,
        "enforced": ["PRODUCER_ID"],
        "tenants": [tenant()],
        "producer_ids": {
            "users": 2,
            "distinct_ids": 120,
            "window_ms": 3_600_000,
            "refused_partitions": 5,
            "untracked": 7,
            "asked_for": [
                {
                    "user": "crash\nloop",
                    "rate_per_s": 0.5,
                    "idempotent": 90,
                    "transactional": 2,
                    "distinct_ids": 4,
                },
                {
                    "user": "orders",
                    "rate_per_s": 0.0,
                    "idempotent": 3,
                    "transactional": 0,
                    "distinct_ids": None,
                },
            ],
        },
    }
    shown = status_lines(status, top=20)
    assert shown[2:] == [
        "producer ids of 2 users: 120 in 1 h 00 min, 5 partitions kept back, 7 untracked",
        "  asked for by crash\N{REPLACEMENT CHARACTER}loop: 30 a minute, 90 so far, 2 transactional",
    ]
    assert all(columns_of(line) <= 80 for line in shown)


def test_a_line_says_who_what_how_long_and_where_the_limit_stands() -> None:
    assert lines(tenant())[1] == (
        "analytics PRODUCE 5.60/2.36 MB/s, muted 1.40 s, 3 connections, quotas.toml:4"
    )


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"mute_left_ms": 0, "muted_connections": 0}, "waits 1.40 s"),
        ({"enforced": False, "mute_left_ms": 0, "throttled_until_ms": None}, "would wait 1.40 s"),
        ({"blocked": True}, "blocked"),
        ({"requests_waiting": 2}, "2 waiting"),
        ({"connections": 1}, "1 connection,"),
        ({"limit_per_s": None, "wait_ms": 0, "mute_left_ms": 0}, "5.60 MB/s, no limit"),
        ({"user": None, "client_id": "app"}, "client app PRODUCE"),
        ({"client_id": "app"}, "analytics/app PRODUCE"),
        ({"user": None, "tags": "group=etl"}, "group=etl PRODUCE"),
        ({"user": 'a"}\n'}, 'a"}\ufffd PRODUCE'),
    ],
)
def test_parts_of_a_line(changes: dict[str, Any], part: str) -> None:
    assert part in lines(tenant(**changes))[1]


LONG_NAMES = [
    ("x" * 500, "y" * 500),
    ("日本語" * 20, "クライアント" * 20),
    ("e\N{COMBINING ACUTE ACCENT}" * 100, "👩‍🔧" * 50),
    ('"}\n' * 50, None),
]


@pytest.mark.parametrize(("user", "client_id"), LONG_NAMES)
def test_a_line_has_80_columns_at_most_whatever_the_names_are(
    user: str, client_id: str | None
) -> None:
    long = tenant(
        user=user,
        client_id=client_id,
        quota_type="CONTROLLER_MUTATION",
        rate_per_s=123.4,
        limit_per_s=567.8,
        requests_waiting=12,
        wait_ms=123_456_789,
        mute_left_ms=123_456_789,
    )

    shown = lines(long, tenant(node_id=2))

    assert max(map(columns_of, shown)) <= 80
    assert "…" in shown[1]
    assert shown[1].endswith("quotas.toml:4")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "no_color", "is_coloured"),
    [(Terminal(), "", True), (Terminal(), "1", False), (io.StringIO(), "", False)],
    ids=["terminal", "NO_COLOR", "file"],
)
def test_colour_is_for_terminals_only(
    stream: io.StringIO, no_color: str, is_coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("NO_COLOR", no_color)
    args = argparse.Namespace(output="lines", watch=False, top=20)

    _show(status_of(tenant(), tenant(user="orders", throttled_until_ms=None)), args)

    _, held, free = stream.getvalue().splitlines()
    assert held.startswith("\x1b[31manalytics PRODUCE" if is_coloured else "analytics PRODUCE")
    assert held.endswith("\x1b[0m") == is_coloured
    assert free.startswith("orders PRODUCE")
    assert "\x1b" not in free


def test_where_the_limit_stands_is_cut_last() -> None:
    shown = lines(tenant(user="x" * 500, limit_from="/etc/" + "long-" * 30 + ".toml:4"))

    assert columns_of(shown[1]) == 80
    assert shown[1].startswith("x… PRODUCE 5.60/2.36 MB/s, muted 1.40 s, long-")


@pytest.mark.parametrize("gateway", ["kvota", "gateway-" * 20])
def test_the_first_line_has_80_columns_too(gateway: str) -> None:
    status = {
        "gateway": gateway,
        "at_ms": AT_MS,
        "connections": 123_456,
        "enforced": ["CONTROLLER_MUTATION", "FETCH", "PRODUCE", "REQUEST"],
        "tenants": [],
    }
    shown = status_lines(status, top=20)

    assert max(map(columns_of, shown)) <= 80
    assert "123456 connections" in shown[0]
    assert "enforces CONTROLLER_MUTATION, FETCH, PRODUCE, REQUEST" in " ".join(shown)
    assert shown[-1] == "nobody has produced, fetched or changed topics yet"


def test_brokers_are_named_where_there_are_several() -> None:
    assert "broker" not in lines(tenant())[1]
    assert "broker 2" in lines(tenant(), tenant(node_id=2))[2]


def test_what_is_not_shown_is_said() -> None:
    shown = lines(*[tenant()] * 2, top=2, of=5)

    assert len(shown) == 4
    assert shown[-1] == "2 of 5 counters shown; --top 5 shows all"
    assert len(lines(*[tenant()] * 2, top=2, of=2)) == 3
    assert (
        lines(*[tenant()] * 2, top=2, of=5_000)[-1]
        == "2 of 5,000 counters shown; --top 1000 shows more"
    )


def test_a_thousand_lines_are_as_many_as_are_asked_for_and_the_rest_is_said() -> None:
    shown = lines(*[tenant(user=f"team-{n}") for n in range(1_000)], top=1_000)
    assert len(shown) == 1_001
    assert max(map(columns_of, shown)) <= 80
    of_5000 = lines(*[tenant(user=f"team-{n}") for n in range(1_000)], top=1_000, of=5_000)
    assert of_5000[-1] == "1,000 of 5,000 counters shown"


@pytest.mark.parametrize(
    ("quota_type", "rate", "limit", "text"),
    [
        ("PRODUCE", 900.0, 1_000_000.0, "0.00/1.00 MB/s"),
        ("PRODUCE", 0.0, 500.0, "0.00/500 B/s"),
        ("FETCH", 250_000_000.0, 10_000_000.0, "250/10.0 MB/s"),
        ("CONTROLLER_MUTATION", 46.0, 5.0, "46.0/5.00 /s"),
    ],
)
def test_rate_and_limit_share_a_unit(quota_type: str, rate: float, limit: float, text: str) -> None:
    assert amount_of_limit(QuotaType(quota_type), rate, limit) == text


# ------------------------------------------------------------------ explain


def counter(**changes: Any) -> dict[str, Any]:
    return {
        "node_id": 1,
        "new": False,
        "outlook": "throttled",
        "outlook_if_enforced": "throttled",
        "wait_ms": 1_400,
        "throttled_until_ms": AT_MS + 1_400,
        "room": 0,
        "configured_limit_per_s": 2_360_000.0,
        "limit_per_s": 2_360_000.0,
        "rate_per_s": 5_600_000.0,
        "samples": 11,
        "sample_ms": 1000,
        "connections": 3,
        "muted_connections": 2,
        "mute_left_ms": 1_400,
        "requests_waiting": 0,
        "last_decision_ms": AT_MS,
        "algorithm": "sampled_rate",
        "blocked": False,
        "factor": 1.0,
        "tokens": None,
        "debt_ms": None,
    } | changes


def quota(**changes: Any) -> dict[str, Any]:
    entity = {
        "text": "user-principal 'analytics'",
        "user": "analytics",
        "client_id": None,
        "user_default": False,
        "client_id_default": False,
    }
    return {
        "quota_type": "PRODUCE",
        "config_key": "producer_byte_rate",
        "unit": "bytes/s",
        "value_unit": "bytes",
        "enforced": True,
        "counted": True,
        "asked": True,
        "levels": [
            {"level": 1, "entity": None, "limit_per_s": None, "limit_from": "", "decides": False},
            {
                "level": 3,
                "entity": entity,
                "limit_per_s": 2_360_000.0,
                "limit_from": "quotas.toml:4",
                "decides": True,
            },
        ],
        "decided_by": entity,
        "limit_from": "quotas.toml:4",
        "change": "edit producer_byte_rate at quotas.toml:4, then kvota gateway reload -c gateway.toml",
        "tags": {"user": "analytics", "client-id": ""},
        "limit_per_s": 2_360_000.0,
        "algorithm": "sampled_rate",
        "counters": [counter()],
    } | changes


def of_ids(**changes: Any) -> dict[str, Any]:
    return {
        "quota_type": "PRODUCER_ID",
        "config_key": "producer_ids_rate",
        "enforced": True,
        "counted": True,
        "decided_by": quota()["decided_by"],
        "limit_from": "quotas.toml:4",
        "change": "edit producer_ids_rate at quotas.toml:4, then kvota gateway reload -c gateway.toml",
        "rate_per_window": 100.0,
        "window_ms": 3_600_000,
        "distinct_ids": 73,
        "new_ids": 12,
        "tokens": 0.25,
        "new_id_refused_ms": 27_000,
        "new_id_refused_until_ms": AT_MS + 27_000,
        "learns_until_ms": None,
        "refused_partitions": 0,
    } | changes


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ", new producer ids until "),
        ({}, "PRODUCER_ID  a new id is refused for 27.0 s more, until "),
        ({}, "decided by   user-principal 'analytics', quotas.toml:4"),
        ({}, "limit        100 new ids in 1 h 00 min"),
        ({}, "now          73 ids seen in 1 h 00 min, 12 of them as new; 0 more may come"),
        (
            {},
            "to change:\n    edit producer_ids_rate at quotas.toml:4, then kvota gateway reload -c gateway.toml",
        ),
        (
            {"enforced": False, "new_id_refused_until_ms": None},
            "passes: shadow mode (a new id would be refused for 27.0 s)",
        ),
        (
            {"new_id_refused_ms": 0, "new_id_refused_until_ms": None, "tokens": 88.4},
            "PRODUCER_ID  a new id passes",
        ),
        ({"tokens": 88.4}, "88 more may come"),
        ({"decided_by": None, "rate_per_window": None}, "passes: no quota matches"),
        ({"rate_per_window": None}, "passes: its quota is no limit"),
        ({"learns_until_ms": AT_MS}, "passes: new ids are not counted until"),
        ({"refused_partitions": 3}, "refused      3 partitions have a refused batch"),
        ({"refused_partitions": 1, "counted": False}, "refused      1 partition has"),
        ({"counted": False}, "\n\nPRODUCER_ID: nobody has a quota"),
    ],
)
def test_explain_says_what_becomes_of_new_producer_ids(changes: dict[str, Any], said: str) -> None:
    assert said in explained(quota(), producer_ids=of_ids(**changes))


def explained(*quotas: dict[str, Any], callback: str = "", near: str = "", **further: Any) -> str:
    return "\n".join(
        explain_lines(
            {
                "gateway": "kvota",
                "at_ms": AT_MS,
                "user": "analytics",
                "client_id": "app",
                "callback": callback,
                "quotas": list(quotas),
                **further,
            },
            near=near,
        )
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "PRODUCE  throttled for 1.40 s more, until "),
        ({}, "> level 3  user-principal 'analytics'"),
        ({}, "counter      user=analytics at broker 1"),
        ({}, "limit        2.36 MB/s, counted by sampled_rate over 11 x 1.00 s"),
        ({}, "now          5.60 MB/s measured; room for 0 B at once"),
        ({}, "connections  3, 2 muted"),
        ({}, "the rate falls to the limit in 1.40 s"),
        (
            {},
            "to change:\n    edit producer_byte_rate at quotas.toml:4, then kvota gateway reload -c gateway.toml",
        ),
        ({"change": "x" * 90}, "  to change:\n    " + "x" * 90),
        ({"change": "y", "decided_by": None}, "to limit it  y"),
        ({"counted": False, "counters": []}, "\n\nPRODUCE, PRODUCER_ID: nobody has a quota"),
        ({"asked": False, "counters": []}, "has not been asked about this client yet"),
        (
            {"limit_per_s": None, "decided_by": None, "counters": [counter(limit_per_s=None)]},
            "passes: no quota matches, so it has no limit",
        ),
        (
            {"enforced": False, "counters": [counter(throttled_until_ms=None)]},
            "passes: shadow mode (it would have to wait 1.40 s)",
        ),
        ({"counters": [counter(blocked=True)]}, "blocked: its limit lets nothing pass"),
        ({"counters": [counter(outlook="waits")]}, "kept back for 1.40 s more"),
        (
            {"counters": [counter(factor=0.5, limit_per_s=1_180_000.0)]},
            "limit        1.18 MB/s (2.36 MB/s x 0.50, the factor in force)",
        ),
        (
            {
                "quota_type": "CONTROLLER_MUTATION",
                "counters": [counter(tokens=-55.0, outlook="refused", node_id=-1)],
            },
            "-55.0 partitions left in the bucket",
        ),
        (
            {"counters": [counter(debt_ms=8_000.0, outlook="waits", outlook_if_enforced="waits")]},
            "owes 8.00 s of its limit",
        ),
        (
            {"counters": [counter(debt_ms=-500.0, wait_ms=0)]},
            "500 ms of its limit left of the burst",
        ),
    ],
)
def test_an_explanation_in_words(changes: dict[str, Any], said: str) -> None:
    assert said in explained(quota(**changes))


def test_the_second_line_says_by_what_it_is_held_back_and_until_when() -> None:
    free = quota(quota_type="FETCH", counters=[counter(throttled_until_ms=None, wait_ms=0)])
    held = explained(free, quota(), quota(quota_type="REQUEST")).splitlines()
    until = time.strftime("%H:%M:%S", time.localtime((AT_MS + 1_400) / 1000))

    assert held[1] == f"held back now by PRODUCE until {until}.4, REQUEST until {until}.4"
    assert explained(free).splitlines()[1] == "not held back now"


def test_types_of_which_nobody_has_a_quota_share_one_line() -> None:
    types = ["PRODUCE", "FETCH", "REQUEST", "CONTROLLER_MUTATION"]
    none = explained(*[quota(quota_type=name, counted=False, counters=[]) for name in types])
    two = explained(quota(), *[quota(quota_type=name, counted=False) for name in types[1:3]])

    assert none.splitlines()[1:] == [
        "not held back now",
        "",
        "PRODUCE, FETCH, REQUEST, CONTROLLER_MUTATION, PRODUCER_ID: nobody has a quota",
    ]
    assert max(map(columns_of, none.splitlines())) <= 80
    assert two.splitlines()[-2:] == ["", "FETCH, REQUEST, PRODUCER_ID: nobody has a quota"]
    assert two.count("to change") == 1


def test_levels_are_listed_where_one_of_them_decides() -> None:
    unlimited = quota(limit_per_s=None, decided_by=None, counters=[counter(limit_per_s=None)])

    assert "level" in explained(quota())
    assert "level" not in explained(unlimited)


def test_who_may_be_meant_is_said_before_all_else() -> None:
    asked = {"user": "ANONYMOUS", "client_id": "anlytics\n"}
    there = [
        {"user": None, "client_id": "analytics"},
        {"user": "orders", "client_id": None},
        {"user": "ANONYMOUS", "client_id": "\x1b[31m"},
    ]

    assert _near(asked, {"tenants": there}) == "client id analytics"
    assert _near({"user": "ordres", "client_id": "analytics"}, {"tenants": there}) == "user orders"
    assert _near(asked, {}) == _near(asked, {"tenants": []}) == ""
    shown = explained(quota(), near="client id analytics\n").splitlines()
    assert shown[2] == "nothing was counted for it yet; did you mean client id analytics\ufffd?"


def test_another_callback_is_named() -> None:
    text = explained(quota(levels=[], decided_by=None, change=""), callback="GroupQuotaCallback")

    assert "decided by   GroupQuotaCallback" in text
    assert "to change" not in text


def test_an_explanation_has_80_columns_where_names_are_not_longer_than_usual() -> None:
    both = {
        "text": "the default user-principal, the default client-id",
        "user": None,
        "client_id": None,
        "user_default": True,
        "client_id_default": True,
    }
    levels = [
        {
            "level": 5,
            "entity": both,
            "limit_per_s": 2_360_000.0,
            "limit_from": "/etc/kvota/quotas.toml:4",
            "decides": True,
        }
    ]
    for_all = of_ids(decided_by=both, limit_from="/etc/kvota/quotas.toml:4", distinct_ids=123_456)
    text = explained(quota(levels=levels), producer_ids=for_all)

    # A command is on a line of its own, to be copied.
    shown = [line for line in text.splitlines() if not line.startswith("    edit producer_")]
    assert len(shown) == len(text.splitlines()) - 2
    assert max(map(columns_of, shown)) <= 80
    assert "> level 5  the default user-principal, the default client-id" in text
    assert "/etc/kvota/quotas.toml:4" in text


def test_long_names_of_a_level_are_cut_and_hostile_ones_stay_on_their_line() -> None:
    entity = quota()["levels"][1]["entity"] | {"text": "user-principal '" + '"}\n語' * 30 + "'"}
    level = quota()["levels"][1] | {"entity": entity}
    text = explained(quota(levels=[level]))

    (shown,) = (line for line in text.splitlines() if "level 3" in line)
    assert columns_of(shown) <= 80
    assert "…" in shown
