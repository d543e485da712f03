"""How the demo ends: which promises were kept, and what to do where one was not."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kvota.app.demo.held_ids import HeldIds
from kvota.app.demo.screen import wrapped
from kvota.app.demo.tenants import CRASHLOOP, ORDERS, PRODUCING, TenantReport
from kvota.app.demo.traffic import percentile
from kvota.app.demo.verdicts import Verdicts
from kvota.files.command_name import called
from kvota.model.bucket_settings import BucketSettings
from kvota.model.quota_window import QuotaWindow

HELD, NOT_HELD, NOT_JUDGED = "✓ yes", "✗ NO", "-"

_LABEL = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What both runs have shown.

    Attributes:
        verdicts: on the limits that were in force.
        law: its result, as a sentence.
        law_holds: every recorded decision was replayed, and came out the same.
        before: what the tenants saw in shadow mode.
        after: what they saw under the plan.
        held_ids: what the broker held of the crash loop's producers, by run.
        new_ids: how many the enforced run allowed, per window of so many seconds.
        refused_orders: how many times a producer id of theirs was refused; they start one producer a run.
        folder: where everything is kept.
    """

    verdicts: Verdicts
    law: str
    law_holds: bool
    before: Mapping[str, TenantReport]
    after: Mapping[str, TenantReport]
    held_ids: Mapping[str, HeldIds]
    new_ids: tuple[float, int]
    refused_orders: int
    folder: Path

    @property
    def marks(self) -> dict[tuple[str, str], str]:
        """The mark of each limit that was judged."""
        return {key: HELD if found.holds else NOT_HELD for key, found in self.verdicts.items()}

    @property
    def broken(self) -> list[str]:
        """The promises that were broken, a sentence each; none: the demo has shown what it should."""
        sentences = [
            f"{tenant} {quota_type}: within {found.elapsed_s:.3f} s it was admitted "
            f"{found.admitted_s:.3f} s of its limit; {found.allowed_s:.3f} s were promised at most"
            for (tenant, quota_type), found in sorted(self.verdicts.items())
            if not found.holds
        ]
        if not self.law_holds:
            sentences.append(f"the law does not hold: {self.law}")
        sentences += _lost("before", self.before) + _lost("after", self.after)
        if disturbed := self.after[ORDERS].failed_records:
            sentences.append(
                f"{ORDERS}, after: {disturbed:,} records were not delivered, though it keeps to its limit"
            )
        held = self.held_ids["enforced"]
        allowed = held.allowed(*self.new_ids, tried=self.after[CRASHLOOP].producers)
        if held.more > allowed:
            sentences.append(
                f"{CRASHLOOP}: the broker has learnt {held.more:,} producer ids; {allowed:,} were promised at most"
            )
        if self.refused_orders:
            sentences.append(
                f"{ORDERS}: a producer id of theirs was refused {self.refused_orders:,} times, though they start one producer"
            )
        return sentences


def _lost(run: str, seen: Mapping[str, TenantReport]) -> list[str]:
    return [
        f"{tenant}, {run}: of {seen[tenant].delivered_records:,} records that were reported as "
        f"delivered {seen[tenant].stored_records:,} are there"
        for tenant in PRODUCING
        if seen[tenant].stored_records < seen[tenant].delivered_records
    ]


def legend(bucket: BucketSettings, mutations: QuotaWindow, window_s: int) -> str:
    """Return what the columns and marks of the closing table mean."""
    burst_s, debt_s = bucket.burst_ms / 1000, bucket.debt_max_ms / 1000
    full_s = mutations.samples * mutations.sample_ms / 1000
    ahead = f"limit x (elapsed + {burst_s:g} s burst + {debt_s:g} s debt) + one request"
    return "\n".join(
        [
            _labelled("rate", "the mean of the run; the burst may lift it above the limit in so short a one"),
            _labelled("would be throttled", "requests over the first guess; shadow mode let them pass"),
            _labelled("throttled", "requests that had to wait; refused: topics and ids, to be tried again later"),
            _labelled(f"held {HELD}", "in every interval, short or long, no more was admitted than"),
            _labelled("", f"  PRODUCE              {ahead}"),
            _labelled("", "  FETCH                the same, with one answer for the request"),
            _labelled("", f"  CONTROLLER_MUTATION  limit x (elapsed + {full_s:g} s burst) + one topic"),
            _labelled("", f"  PRODUCER_ID          limit x (elapsed + {window_s / 3600:g} h burst) + one id"),
            _labelled(f"     {NOT_HELD}", "more was admitted; what to do then stands at the end"),
            _labelled(f"     {NOT_JUDGED}", "it sent nothing, or had no limit"),
        ]
    )  # fmt: skip


def closing_lines(ending: Ending) -> str:
    """Return what is worth to be known beside the table, and where to go on."""
    was, now = (seen[ORDERS].latencies_ms for seen in (ending.before, ending.after))
    record = ending.folder / "enforced" / "record"
    lines = [
        _labelled("orders' latency", f"before  {_latency(was)}"),
        _labelled("", f"after   {_latency(now)}"),
        *_producer_ids(ending),
        _labelled("records", _records(ending)),
        wrapped(
            _labelled("law", f"{ending.law}: replayed on Spark, to the millisecond"),
            hanging=_labelled("", ""),
        ),
        _labelled("next", f"{called()} usage --events {record}"),
        _labelled("", f"{called()} replay --events {record} --law"),
        _labelled("", "docs/quotas-that-hold.md: why it holds; docs/gateway.md: your own cluster"),
    ]
    return "\n".join(lines)


def outcome(ending: Ending) -> str:
    """Return whether all promises were kept; where one was not, what to do."""
    broken = ending.broken
    if not broken:
        return "✓ every limit held, the law holds, nothing that was delivered is missing"
    return "\n".join(
        [
            "✗ a promise was broken:",
            *(wrapped(sentence, indent="  ") for sentence in broken),
            "What to do:",
            "  That is a fault of kvota, not yours. See whether each decision follows from the rows before:",
            f"    {called()} replay --events {ending.folder / 'enforced' / 'record'} --law",
            "  and report what it says, with the logs and the record, which stay in",
            f"    {ending.folder}",
        ]
    )


def _records(ending: Ending) -> str:
    delivered = sum(
        seen[tenant].delivered_records
        for seen in (ending.before, ending.after)
        for tenant in PRODUCING
    )
    missing = sum(
        max(0, seen[tenant].delivered_records - seen[tenant].stored_records)
        for seen in (ending.before, ending.after)
        for tenant in PRODUCING
    )
    return f"{delivered:,} reported as delivered in both runs, {missing:,} of them missing"


def _producer_ids(ending: Ending) -> list[str]:
    """What the broker has to remember of producers that are gone."""
    rate, _ = ending.new_ids
    was, now = ending.held_ids["shadow"], ending.held_ids["enforced"]
    return [
        _labelled("crashloop's ids", f"before  {_held(ending.before, was)}"),
        _labelled("", f"after   {_held(ending.after, now)} ({rate:g} more allowed)"),
    ]


def _held(seen: Mapping[str, TenantReport], held: HeldIds) -> str:
    made = seen[CRASHLOOP].producers
    return f"it made {made:,}, the broker held {held.before:,}, then {held.after:,}"


def _latency(latencies_ms: list[float]) -> str:
    return (
        f"p50 {percentile(latencies_ms, 0.5):.1f} ms  p99 {percentile(latencies_ms, 0.99):.0f} ms"
    )


def _labelled(label: str, text: str) -> str:
    return f"{label:<{_LABEL}}  {text}"
