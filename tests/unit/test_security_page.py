"""docs/security.md: every test that it names exists, and every limit is the one in the code."""

import ast
import re
from pathlib import Path

import pytest

from kvota.engine.kept_places import KEPT_MAX
from kvota.engine.refused_batches import ALL_MAX, OF_USER_MAX
from kvota.gateway import tls_transport
from kvota.gateway.backlog import HELD_BYTES_MAX, LARGE_READ_BYTES
from kvota.gateway.callback_asking import QUESTIONS_MAX
from kvota.gateway.leaving import HURRY_S, LEAVE_S
from kvota.gateway.listeners import LET_IN_AT_ONCE
from kvota.gateway.little_reads import LITTLE_READ_BYTES
from kvota.gateway.receive_buffers import RECEIVE_BUFFER_BYTES, WIDE_BYTES, WIDE_MAX
from kvota.gateway.settings import GatewayLimits, leaving_max
from kvota.record.event_block import UNPACKED_BYTES_MAX
from kvota.record.record_limits import RecordLimits
from kvota.record.usage_state import OPEN_ROWS_MAX
from kvota.session.answer_heads import BUFFERED_FETCH_BYTES_MAX
from kvota.session.caller import ASK_MS_MAX
from kvota.session.exchanges.exchange import WHOLE_ANSWER_BYTES_MAX
from kvota.session.fetch_room import WAITING_FETCHES_BYTES_MAX
from kvota.session.giving_way import LOGIN_S
from kvota.session.line_place import WAIT_MS_MAX
from kvota.session.requests import CLIENT_ID_BYTES_MAX, EVIDENCE_BYTES
from kvota.session.settings import ConnectionSettings
from kvota.session.share_fetch_requests import SHARE_FETCH_WAIT_MS_MAX
from kvota.session.shared import WHOLE_ANSWERS_BYTES
from kvota.session.whole_requests import LARGE_BUDGET_BYTES, SMALL_BUDGET_BYTES
from kvota.wire.apis import MUTATION_BYTES_MAX, SASL_BYTES_MAX
from kvota.wire.bearer_token import CLAIMS_CHARACTERS_MAX
from kvota.wire.mutation_requests import TOPICS_MAX
from kvota.wire.producer_ids import BATCHES_MAX
from kvota.wire.proxy_protocol import ADDRESSES_BYTES_MAX

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
NAMED = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)
ROW = re.compile(r"^\| [^|]+ \| (?P<default>[\d,]+)[^|]* \| `(?P<place>[^`]+)`", re.MULTILINE)

limits, connection = GatewayLimits(), ConnectionSettings()
DEFAULTS = {
    "limits.connections_max": limits.connections_max,
    "leaving_max": leaving_max(limits.connections_max),
    "LET_IN_AT_ONCE": LET_IN_AT_ONCE,
    "RECEIVE_BUFFER_BYTES": RECEIVE_BUFFER_BYTES,
    "WIDE_BYTES": WIDE_BYTES,
    "WIDE_MAX": WIDE_MAX,
    "LEAVE_S": LEAVE_S,
    "HURRY_S": HURRY_S,
    "LOGIN_S": LOGIN_S,
    "limits.request_bytes_max": connection.request_bytes_max,
    "UNPACKED_BYTES_MAX": UNPACKED_BYTES_MAX,
    "OPEN_ROWS_MAX": OPEN_ROWS_MAX,
    "SASL_BYTES_MAX": SASL_BYTES_MAX,
    "MUTATION_BYTES_MAX": MUTATION_BYTES_MAX,
    "TOPICS_MAX": TOPICS_MAX,
    "limits.mutation_partitions_max": connection.mutation_partitions_max,
    "CLIENT_ID_BYTES_MAX": CLIENT_ID_BYTES_MAX,
    "OF_USER_MAX": OF_USER_MAX,
    "ALL_MAX": ALL_MAX,
    "BATCHES_MAX": BATCHES_MAX,
    "limits.announced_bytes_max": limits.announced_bytes_max,
    "EVIDENCE_BYTES": EVIDENCE_BYTES,
    "limits.frame_time": limits.frame_ms,
    "frame_bytes_per_s_min": limits.frame_bytes_per_s_min,
    "limits.in_flight_max": connection.in_flight_max,
    "WHOLE_ANSWER_BYTES_MAX": WHOLE_ANSWER_BYTES_MAX,
    "BUFFERED_FETCH_BYTES_MAX": BUFFERED_FETCH_BYTES_MAX,
    "CLAIMS_CHARACTERS_MAX": CLAIMS_CHARACTERS_MAX,
    "limits.tls_handshake_time": limits.tls_handshake_ms,
    "ADDRESSES_BYTES_MAX": ADDRESSES_BYTES_MAX,
    "limits.login_time": limits.login_ms,
    "_RECORDS_MAX": tls_transport._RECORDS_MAX,
    "limits.write_buffer_bytes": limits.write_buffer_bytes,
    "LARGE_READ_BYTES": LARGE_READ_BYTES,
    "LITTLE_READ_BYTES": LITTLE_READ_BYTES,
    "HELD_BYTES_MAX": HELD_BYTES_MAX,
    "SMALL_BUDGET_BYTES": SMALL_BUDGET_BYTES,
    "LARGE_BUDGET_BYTES": LARGE_BUDGET_BYTES,
    "WHOLE_ANSWERS_BYTES": WHOLE_ANSWERS_BYTES,
    "WAITING_FETCHES_BYTES_MAX": WAITING_FETCHES_BYTES_MAX,
    "SHARE_FETCH_WAIT_MS_MAX": SHARE_FETCH_WAIT_MS_MAX,
    "limits.mute_time_max": connection.mute_ms_max,
    "WAIT_MS_MAX": WAIT_MS_MAX,
    "KEPT_MAX": KEPT_MAX,
    "ASK_MS_MAX": ASK_MS_MAX,
    "QUESTIONS_MAX": QUESTIONS_MAX,
    "record.buffer_rows": RecordLimits().buffer_rows,
}


@pytest.mark.parametrize(("path", "name"), sorted(set(NAMED)))
def test_a_test_that_the_page_names_exists(path: str, name: str) -> None:
    tree = ast.parse((ROOT / "tests" / path).read_text())

    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert name in {node.name for node in tree.body if isinstance(node, functions)}


def test_the_limits_are_those_of_the_code() -> None:
    told = {row["place"]: int(row["default"].replace(",", "")) for row in ROW.finditer(PAGE)}

    assert told == DEFAULTS


def test_no_claim_of_what_an_attacker_cannot_do_is_without_a_test() -> None:
    tables = re.findall(r"^\| cannot \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)

    rows = [row for table in tables for row in table.splitlines()]
    assert len(rows) > 15
    assert [row for row in rows if ".py::test_" not in row] == []
