"""Alert rules and dashboard name only metrics, labels and values of labels that a gateway writes; Grafana can load it."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kvota.metrics.declared import DECLARED
from kvota.metrics.metric import MetricKind
from kvota.model.quota_type import QuotaType
from kvota.session.pausing import Reason

MONITORING = Path(__file__).parents[3] / "monitoring"
RULES = (MONITORING / "alerts.yml").read_text()
DASHBOARD: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())

# What Prometheus adds to each series itself.
_ADDED = frozenset({"instance", "job"})
LABELS = {metric.name: _ADDED | set(metric.labels) for metric in DECLARED} | {"up": _ADDED}
for _metric in DECLARED:
    if _metric.kind is MetricKind.HISTOGRAM:
        LABELS |= {_metric.name + "_bucket": _ADDED | {"le"}}
        LABELS |= {_metric.name + suffix: _ADDED for suffix in ("_sum", "_count")}
# Values that are named somewhere, and which there are.
VALUES = {
    "quota_type": {str(one) for one in QuotaType},
    "reason": {(one.name or "").lower() for one in Reason} | {"client", "unreachable"},
    "user": {"__other__"},
    "result": {"refused"},
    "job": {"kvota"},
}

_SELECTOR = re.compile(r"\b((?:kvota|kafka_server|process)_[a-z_]+|up)\b(?!\s*\()(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring|group_left)\s*\(([^)]*)\)")
_RENAMED = re.compile(r'label_replace\(.*?,\s*"(\w+)"')


def selectors(expr: str) -> Iterator[tuple[str, str]]:
    yield from ((found[1], found[2] or "") for found in _SELECTOR.finditer(expr))


def labels_within(expr: str) -> set[str]:
    """Labels that a result may have, whatever its functions do: those of its metrics, and those made here."""
    of_metrics = set().union(*(LABELS.get(name, set()) for name, _ in selectors(expr)))
    return of_metrics | set(_RENAMED.findall(expr))


def check_expression(expr: str) -> None:
    names = list(selectors(expr))
    assert names, f"no metric in {expr}"
    for name, matchers in names:
        assert name in LABELS, f"no metric {name}"
        for label, _, value in _MATCHER.findall(matchers):
            assert label in LABELS[name], f"{name} has no label {label}"
            if not value.startswith("$"):
                assert set(value.split("|")) <= VALUES[label], f"{label} is never {value}"
    for group in _GROUPING.findall(expr):
        for label in filter(None, map(str.strip, group.split(","))):
            assert label in labels_within(expr), f"nothing has the label {label} in {expr}"


def shown_labels(expr: str) -> set[str]:
    """Labels that are left for a legend or a text."""
    groups = re.findall(r"\bsum by\s*\(([^)]*)\)", expr)
    if not groups:
        return labels_within(expr)
    kept = {label.strip() for group in groups for label in group.split(",")}
    return kept - {"le"} if "histogram_quantile" in expr else kept


def rules() -> list[tuple[str, str, str]]:
    """Name, expression and texts of each rule."""
    found = []
    for part in re.split(r"\n      - alert: ", RULES)[1:]:
        name, _, body = part.partition("\n")
        expr = re.search(r"expr:(?: >\n)?((?:.|\n)*?)\n        (?:for|labels):", body)
        assert expr is not None, name
        found.append((name, expr[1].strip(), body[body.index("annotations:") :]))
    return found


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def test_the_rules_are_all_looked_at() -> None:
    assert len(rules()) == RULES.count("- alert:") >= 12


@pytest.mark.parametrize(
    ("name", "expr", "texts"), [pytest.param(*one, id=one[0]) for one in rules()]
)
def test_a_rule_names_what_there_is(name: str, expr: str, texts: str) -> None:
    check_expression(expr)
    named = set(re.findall(r"\$labels\.(\w+)", texts))

    assert named <= shown_labels(expr), name


@pytest.mark.parametrize(
    ("expr", "legend"),
    [
        pytest.param(target["expr"], target["legendFormat"], id=f"{panel['id']}{target['refId']}")
        for panel in panels()
        for target in panel["targets"]
    ],
)
def test_a_panel_names_what_there_is(expr: str, legend: str) -> None:
    check_expression(expr)

    assert set(re.findall(r"{{(\w+)}}", legend)) <= shown_labels(expr)


def test_variables_and_annotations_name_what_there_is() -> None:
    queries = [
        one["query"]["query"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"
    ]
    assert queries
    for query in queries:
        found = re.fullmatch(r"label_values\((\w+), (\w+)\)", query)
        assert found is not None
        assert found[2] in LABELS[found[1]]
    for annotation in DASHBOARD["annotations"]["list"]:
        check_expression(annotation["expr"])


def test_every_quota_type_has_a_panel_with_its_rate_and_one_with_its_share() -> None:
    text = json.dumps(DASHBOARD)

    for name in ("produce_byte_rate", "fetch_byte_rate", "request_request_time"):
        assert f"topk(10, kafka_server_{name}{{" in text
    for quota_type in ("PRODUCE", "FETCH", "REQUEST"):
        assert f'kvota_quota_limit{{quota_type=\\"{quota_type}\\"}}' in text
    assert "kafka_server_controllermutation_tokens" in text


# ---------------------------------------------------------------- what Grafana asks of a dashboard


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    """Its model: https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/."""
    assert DASHBOARD["title"]
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", DASHBOARD["uid"])
    assert DASHBOARD.get("id") is None
    assert isinstance(DASHBOARD["schemaVersion"], int)
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    variables = {one["name"] for one in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD["panels"])))
    assert used <= variables | {"__rate_interval", "__interval"}
    for panel in panels():
        assert {"type", "title", "datasource", "gridPos", "targets", "fieldConfig"} <= panel.keys()
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])


def test_panels_do_not_overlap_and_stand_in_order() -> None:
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [
        (x, y)
        for one in places
        for x in range(one["x"], one["x"] + one["w"])
        for y in range(one["y"], one["y"] + one["h"])
    ]

    assert len(set(cells)) == len(cells)
    assert all(one["x"] + one["w"] <= 24 for one in places)
    assert all((one["y"], one["x"]) < (next_["y"], next_["x"]) for one, next_ in pairwise(places))
