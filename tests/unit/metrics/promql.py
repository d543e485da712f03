"""What a PromQL expression asks for and which labels its result has, by the tree that a parser of PromQL makes of it."""

import re
from collections.abc import Mapping

from promql_parser import (
    AggModifierType,
    AggregateExpr,
    BinaryExpr,
    Call,
    Expr,
    LabelModifierType,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    StringLiteral,
    SubqueryExpr,
    UnaryExpr,
    VectorSelector,
    parse,
    walk,
)

Labels = frozenset[str]

# What Grafana puts in before Prometheus sees it.
_OF_GRAFANA = re.compile(r"\$\{?__(?:rate_)?interval\}?")
_SETS = frozenset({"and", "or", "unless"})
# These keep series as they are; other aggregations make new ones.
_CHOOSING = frozenset({"topk", "bottomk"})


def parsed(text: str) -> Expr:
    """The tree of an expression; ValueError: it is no PromQL."""
    return parse(_OF_GRAFANA.sub("5m", text))


def selectors(expr: Expr) -> list[VectorSelector]:
    """All that choose series."""
    return [one for one in _nodes(expr) if isinstance(one, VectorSelector)]


def counted(expr: Expr) -> list[VectorSelector]:
    """Those whose growth is looked at: what they choose has to be counters."""
    return [
        one.args[0].vector_selector
        for one in _nodes(expr)
        if isinstance(one, Call)
        and one.func.name in {"rate", "irate", "increase"}
        and isinstance(one.args[0], MatrixSelector)
    ]


def labels_of(expr: Expr, of_metric: Mapping[str, Labels]) -> Labels:
    """Labels that the result may have.

    Raises:
        AssertionError: something is grouped or matched by a label that is not there.
    """
    match expr:
        case VectorSelector() | MatrixSelector():
            return of_metric[str(getattr(expr, "vector_selector", expr).name)]
        case ParenExpr() | SubqueryExpr() | UnaryExpr():
            return labels_of(expr.expr, of_metric)
        case AggregateExpr():
            return _aggregated(expr, labels_of(expr.expr, of_metric))
        case Call():
            return _called(expr, of_metric)
        case BinaryExpr():
            return _matched(expr, labels_of(expr.lhs, of_metric), labels_of(expr.rhs, of_metric))
    assert isinstance(expr, NumberLiteral | StringLiteral), expr
    return frozenset()


def _aggregated(expr: AggregateExpr, inner: Labels) -> Labels:
    named = frozenset(expr.modifier.labels) if expr.modifier else frozenset()
    _there(named, inner, expr)
    if str(expr.op) in _CHOOSING:
        return inner
    is_without = expr.modifier is not None and expr.modifier.type == AggModifierType.Without
    return inner - named if is_without else named


def _called(expr: Call, of_metric: Mapping[str, Labels]) -> Labels:
    inner = frozenset[str]().union(*(labels_of(one, of_metric) for one in expr.args))
    if expr.func.name == "label_replace":
        return inner | {expr.args[1].val}
    return inner - {"le"} if expr.func.name == "histogram_quantile" else inner


def _matched(expr: BinaryExpr, left: Labels, right: Labels) -> Labels:
    if str(expr.op) in _SETS:
        return left | right if str(expr.op) == "or" else left
    if any(isinstance(side, NumberLiteral) for side in (expr.lhs, expr.rhs)):
        return left | right
    matching = expr.modifier.matching if expr.modifier else None
    if matching is None:
        return left & right
    named = frozenset(matching.labels)
    _there(named, left & right, expr)
    group = frozenset(expr.modifier.group_labels or ())
    return (named if matching.type == LabelModifierType.Include else left - named) | group


def _there(named: Labels, labels: Labels, expr: Expr) -> None:
    assert named <= labels, f"nothing has {sorted(named - labels)} in {expr}"


def _nodes(expr: Expr) -> list[Expr]:
    found: list[Expr] = []
    walk(expr, found.append)
    return found
