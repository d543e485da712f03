"""One broker by two names has one memory."""

from kvota.session.budget import AnnouncedBudgets, BudgetShare

NAME, ADDRESS, OTHER = ("localhost", 9092), ("127.0.0.1", 9092), ("127.0.0.1", 9093)


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
