"""Compiles the kernels before they are needed, once per machine."""

import numpy as np

from kvota.pipeline import closed_kernels, grid_sums, law_kernel, open_kernels, usage_kernel


def compile_kernels() -> None:
    """Run every kernel on one row; Numba keeps the machine code for all later processes.

    Takes about ten seconds of CPU where nothing is kept yet, else a fraction of a second.
    """
    ints, doubles, yes = np.ones(1, np.int64), np.ones(1), np.ones(1, np.bool_)
    ring, ring_totals = np.zeros(2, np.int64), np.zeros(2)
    rows = (ints, doubles, doubles, ints, ints)
    state = np.zeros(law_kernel.STATE_SIZE, np.int64)
    replayed = (np.zeros(1, np.int32), np.zeros(1, np.int8), np.zeros(1, np.bool_))
    law_kernel.law_rows(
        *(yes,) * 7,
        *rows[:3],
        doubles,
        *rows[3:],
        state,
        doubles,
        ring,
        ring.copy(),
        ring_totals,
        *replayed,
    )
    clock = np.zeros(grid_sums.CLOCK_SIZE, np.int64)
    own = np.zeros((grid_sums.OWN_ROWS, 1), np.int64)
    sums = np.zeros((grid_sums.SUMS, 1))
    flags, asked = (yes, yes), (doubles, False, 1.0)
    open_kernels.bucket_open_rows(*rows, *flags, *asked, clock, doubles, sums)
    open_kernels.debt_open_rows(*rows, yes, *asked, 0.0, clock, doubles, sums)
    open_kernels.rate_open_rows(*rows, yes, *asked, clock, ring, ring.copy(), ring_totals, sums)
    rings = (ring.reshape(1, 2), ring.reshape(1, 2).copy(), ring_totals.reshape(1, 2))
    how = (True, grid_sums.BACKLOG)
    closed_kernels.closed_rows(*rows, *flags, *asked, *how, clock, own, doubles, *rings, sums)
    how_in_debt = (0.0, grid_sums.BACKLOG)
    closed_kernels.debt_closed_rows(*rows, yes, *asked, *how_in_debt, clock, own, doubles, sums)
    rates = np.zeros((usage_kernel.RATES, 1))
    usage_kernel.usage_windows(
        ints, ints, doubles, doubles, ints, ints, np.zeros(2, np.int64), ints.copy(), rates
    )
