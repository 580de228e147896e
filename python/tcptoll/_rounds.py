"""Which trials go into figures: of each arm and round the last one that counts."""

from __future__ import annotations

from collections.abc import Sequence

from ._trial import Trial

REPEATED = "repeated in the same round"


def reasons(trials: Sequence[Trial]) -> list[str | None]:
    """Why each trial is left out, in the order given; None: it goes into figures."""
    last: dict[tuple[str, int], int] = {}

    def place(at: int) -> tuple[int, int, float]:
        trial = trials[at]
        return trial.attempt, trial.order, trial.began_s

    for at, trial in enumerate(trials):
        if trial.left_out is None:
            key = (trial.arm, trial.round)
            if key not in last or place(at) >= place(last[key]):
                last[key] = at
    counting = set(last.values())
    return [
        None if at in counting else (REPEATED if trial.left_out is None else trial.left_out)
        for at, trial in enumerate(trials)
    ]
