"""Decides. Time comes in as ``now_ms``, a decision goes out. Kafka's arithmetic bit for bit."""

from kvota.engine.answer_room import AnswerRoom, Reservation, Verdict
from kvota.engine.debt_bucket import MUST_WAIT
from kvota.engine.decision import Decision
from kvota.engine.engine import QuotaEngine
from kvota.engine.factored import Factored
from kvota.engine.kept_places import PlaceKey
from kvota.engine.lane import Lane
from kvota.engine.layered_bloom import Layering
from kvota.engine.mutations import MutationQuota
from kvota.engine.producer_ids import (
    KNOWN,
    NEW,
    ProducerIdQuotaManagerCache,
    ProducerIdReading,
    ProducerIds,
)
from kvota.engine.question import Answer, Question, asks_by_broker
from kvota.engine.receipt import Receipt
from kvota.engine.sampled_rate import SampledRate
from kvota.engine.token_bucket import TokenBucket
from kvota.engine.waiting_line import Turn, WaitingLine
from kvota.model.quota_type import QuotaType
from kvota.model.quota_window import QuotaWindow

__all__ = [
    "KNOWN",
    "MUST_WAIT",
    "NEW",
    "Answer",
    "AnswerRoom",
    "Decision",
    "Factored",
    "Lane",
    "Layering",
    "MutationQuota",
    "PlaceKey",
    "ProducerIdQuotaManagerCache",
    "ProducerIdReading",
    "ProducerIds",
    "Question",
    "QuotaEngine",
    "QuotaType",
    "QuotaWindow",
    "Receipt",
    "Reservation",
    "SampledRate",
    "TokenBucket",
    "Turn",
    "Verdict",
    "WaitingLine",
    "asks_by_broker",
]
