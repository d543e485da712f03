"""Alert rules and dashboard say PromQL, of metrics, labels and values that a gateway writes; Prometheus and Grafana can load them.

``promtool`` says more of a rule than a schema does: `tests/integration/test_gateway_http` asks it where there is one.
"""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest
import yaml
from promql_parser import MatchOp
from tests.unit.metrics.promql import counted, labels_of, parsed, selectors

from kvota.metrics.declared import DECLARED
from kvota.metrics.metric import MetricKind
from kvota.model.quota_type import QuotaType
from kvota.session.pausing import Reason

MONITORING = Path(__file__).parents[3] / "monitoring"
RULES: dict[str, Any] = yaml.safe_load((MONITORING / "alerts.yml").read_text())
RULE_TESTS: dict[str, Any] = yaml.safe_load((MONITORING / "alerts_test.yml").read_text())
DASHBOARD: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())

# What Prometheus adds to each series itself.
_ADDED = frozenset({"instance", "job"})
LABELS = {metric.name: _ADDED | set(metric.labels) for metric in DECLARED} | {"up": _ADDED}
GROWING = {metric.name for metric in DECLARED if metric.kind is MetricKind.COUNTER}
for _metric in DECLARED:
    if _metric.kind is MetricKind.HISTOGRAM:
        LABELS |= {_metric.name + "_bucket": _ADDED | {"le"}}
        LABELS |= {_metric.name + suffix: _ADDED for suffix in ("_sum", "_count")}
        GROWING |= {_metric.name + suffix for suffix in ("_bucket", "_sum", "_count")}
# Values that are named somewhere, and which there are.
VALUES = {
    "quota_type": {str(one) for one in QuotaType},
    "reason": {(one.name or "").lower() for one in Reason} | {"client", "unreachable"},
    "user": {"__other__"},
    "result": {"refused"},
    "job": {"kvota"},
}

# https://prometheus.io/docs/prometheus/latest/configuration/alerting_rules/
_TEXTS = {"type": "object", "additionalProperties": {"type": "string", "minLength": 1}}
_DURATION = {"type": "string", "pattern": "^([0-9]+(ms|[smhdwy]))+$"}
is_of_rules = fastjsonschema.compile(
    {
        "type": "object",
        "required": ["groups"],
        "additionalProperties": False,
        "properties": {
            "groups": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "required": ["name", "rules"],
                    "additionalProperties": False,
                    "properties": {
                        "name": {"type": "string"},
                        "interval": _DURATION,
                        "rules": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "required": ["alert", "expr", "labels", "annotations"],
                                "additionalProperties": False,
                                "properties": {
                                    "alert": {"type": "string", "pattern": "^Kvota[A-Za-z]+$"},
                                    "expr": {"type": "string"},
                                    "for": _DURATION,
                                    "keep_firing_for": _DURATION,
                                    "labels": _TEXTS,
                                    "annotations": _TEXTS
                                    | {"required": ["summary", "description"]},
                                },
                            },
                        },
                    },
                },
            }
        },
    }
)
# What stands in braces in our texts; each is of Go's templates as Prometheus has them.
_TEMPLATE = re.compile(
    r"\$labels\.\w+|\$value( \| humanize(Duration|Percentage)?)?|with \$labels\.\w+|\.|end"
)


def rules() -> list[dict[str, Any]]:
    return [rule for group in RULES["groups"] for rule in group["rules"]]


def check_expression(text: str) -> set[str]:
    """Returns the labels of its result."""
    expr = parsed(text)
    found = selectors(expr)
    assert found, f"no metric in {text}"
    for one in found:
        assert one.name in LABELS, f"no metric {one.name}"
        for matcher in one.matchers.matchers:
            assert matcher.name in LABELS[one.name], f"{one.name} has no label {matcher.name}"
            values = set(matcher.value.split("|"))
            assert len(values) == 1 or matcher.op == MatchOp.Re, text
            if not matcher.value.startswith("$"):
                assert values <= VALUES[matcher.name], f"{matcher.name} is never {matcher.value}"
    for one in counted(expr):
        assert one.name in GROWING, f"{one.name} is no counter"
    return set(labels_of(expr, {name: frozenset(labels) for name, labels in LABELS.items()}))


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def test_the_rules_are_of_prometheus_form() -> None:
    is_of_rules(RULES)
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) >= 12


@pytest.mark.parametrize("rule", [pytest.param(one, id=one["alert"]) for one in rules()])
def test_a_rule_names_what_there_is(rule: dict[str, Any]) -> None:
    labels = check_expression(rule["expr"])
    texts = " ".join([*rule["annotations"].values(), *rule["labels"].values()])
    pieces = re.findall(r"{{-?(.*?)-?}}", texts)

    assert texts.count("{{") == texts.count("}}") == len(pieces)
    assert all(_TEMPLATE.fullmatch(piece.strip()) for piece in pieces), pieces
    assert set(re.findall(r"\$labels\.(\w+)", texts)) <= labels


def test_every_rule_has_a_test_of_its_own_that_names_what_there_is() -> None:
    tested = {one["alertname"] for test in RULE_TESTS["tests"] for one in test["alert_rule_test"]}
    assert tested == {rule["alert"] for rule in rules()}
    for test in RULE_TESTS["tests"]:
        for one in test["input_series"]:
            (selector,) = selectors(parsed(one["series"]))
            assert {matcher.name for matcher in selector.matchers.matchers} <= LABELS[selector.name]


def test_the_configuration_beside_them_names_files_that_there_are() -> None:
    config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())

    assert config.keys() == {"global", "rule_files", "scrape_configs"}
    assert all((MONITORING / name).is_file() for name in config["rule_files"])
    assert [one["job_name"] for one in config["scrape_configs"]] == ["kvota"]


@pytest.mark.parametrize(
    ("expr", "fault"),
    [
        ("rate(kvota_mutes_total)", "expected type matrix"),
        ("sum by (instance (up)", "parenthesis"),
        ("rat(up[5m])", "unknown function"),
        ("kvota_mutes", "no metric kvota_mutes"),
        ('up{jop="kvota"} == 0', "no label jop"),
        ('kvota_connections_paused{reason="muteed"}', "reason is never muteed"),
        ("rate(kvota_connections[5m])", "is no counter"),
        ("sum by (user) (kvota_connections)", r"nothing has \['user'\]"),
        ("kvota_connections / on (user) up", r"nothing has \['user'\]"),
    ],
)
def test_faults_of_an_expression_are_found(expr: str, fault: str) -> None:
    with pytest.raises((AssertionError, ValueError), match=fault):
        check_expression(expr)


@pytest.mark.parametrize(
    ("expr", "legend"),
    [
        pytest.param(target["expr"], target["legendFormat"], id=f"{panel['id']}{target['refId']}")
        for panel in panels()
        for target in panel["targets"]
    ],
)
def test_a_panel_names_what_there_is(expr: str, legend: str) -> None:
    labels = check_expression(expr)

    assert set(re.findall(r"{{(\w+)}}", legend)) <= labels


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
