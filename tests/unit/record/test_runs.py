"""How many gateways of one name there were at once."""

from kvota.record.runs import Run, runs_at_once


def run(gateway: str, run_id: str, first_us: int, last_us: int) -> Run:
    return Run(gateway, run_id, 0, 9, 10, first_us, last_us)


def test_a_gateway_that_starts_anew_is_one() -> None:
    restarted = [run("g", "a", 0, 100), run("g", "b", 100, 200), run("g", "c", 201, 201)]

    assert runs_at_once(restarted) == {"g": 1}


def test_runs_of_one_name_that_overlap_are_counted_for_each_name() -> None:
    runs = [
        run("g", "a", 0, 100),
        run("g", "b", 50, 250),
        run("g", "c", 90, 95),
        run("g", "d", 200, 300),
        run("other", "a", 0, 300),
    ]

    assert runs_at_once(runs) == {"g": 3, "other": 1}
    assert runs_at_once([]) == {}
