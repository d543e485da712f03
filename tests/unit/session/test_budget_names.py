"""One broker by two names has one memory."""

from kvota.session.budget import AnnouncedBudgets, BudgetShare
from kvota.session.requests import EVIDENCE_BYTES
from kvota.session.topology import UNKNOWN_NODE, UNNAMED_NODE
from kvota.testing.frames import produce
from kvota.testing.stage import Cluster, Stage

NAME, ADDRESS, OTHER = ("localhost", 9092), ("127.0.0.1", 9092), ("127.0.0.1", 9093)
NOW_US = 10**15


def test_a_broker_that_was_dialled_by_a_name_has_one_budget() -> None:
    budgets = AnnouncedBudgets(limit_bytes=1_000)
    by_name = budgets.of(NAME)

    budgets.are_one(NAME, ADDRESS)

    assert budgets.of(ADDRESS) is budgets.of(NAME) is by_name
    assert budgets.of(OTHER) is not by_name


def test_where_both_are_in_use_whoever_comes_takes_of_that_of_the_address() -> None:
    budgets = AnnouncedBudgets(limit_bytes=1_000)
    budgets.of(NAME)
    by_address = budgets.of(ADDRESS)

    budgets.are_one(NAME, ADDRESS)

    assert budgets.of(NAME) is by_address


def test_what_is_announced_is_counted_once() -> None:
    budgets = AnnouncedBudgets(limit_bytes=1_000)
    budgets.are_one(NAME, ADDRESS)

    assert BudgetShare(budgets.of(NAME), lambda: None).take(100, ("alice", ""))

    assert budgets.used_bytes == 100


LARGE = 100 * 2**20


def announced(size_bytes: int) -> bytes:
    """The part of a Produce of this size that has to be here before it goes on."""
    return size_bytes.to_bytes(4, "big") + produce(records=bytes(EVIDENCE_BYTES))[4:]


def test_who_learns_its_broker_does_not_let_others_into_a_full_budget() -> None:
    cluster = Cluster(budget_bytes=LARGE)
    first, second = (Stage(cluster, number=n, node_id=UNKNOWN_NODE) for n in range(2))
    for stage in (first, second):
        stage.client(announced(LARGE))

    first.machine.located(UNNAMED_NODE, NOW_US)

    assert cluster.shared.budgets.used_bytes == LARGE
    assert cluster.shared.budgets.is_waited_for


def test_who_learns_its_broker_takes_of_the_budget_of_its_address_from_then_on() -> None:
    cluster = Cluster(budget_bytes=LARGE)
    by_name = Stage(cluster, number=0, node_id=UNKNOWN_NODE, dialled=NAME)
    by_address = Stage(cluster, number=1, dialled=ADDRESS)
    cluster.shared.topology.brokers[1] = ADDRESS
    by_name.client(announced(LARGE))

    by_name.machine.located(1, NOW_US)
    by_address.client(announced(LARGE))

    assert cluster.shared.budgets.of(ADDRESS).used_bytes == LARGE
    assert cluster.shared.budgets.is_waited_for
