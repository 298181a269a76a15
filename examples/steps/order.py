"""Whether readers were given the steps that they are promised."""

from __future__ import annotations


def fault(
    given: dict[str, list[int]], count: int, killed: set[str], beginning: dict[str, int], queue: int
) -> str | None:
    """What is wrong with the steps `given` to each reader, in their order; None if nothing is.

    Each reader is given all steps from its `beginning` (0 where that has none) to the last of `count`, each once.
    Readers that were `killed`, once and together, are ranks of one group: all are given again what not all of
    them had released, which may be several steps of a rank that was ahead, but no more than the `queue` of the
    writer, which waits while so many are not released.
    """
    begun_again: set[int] = set()
    for name, steps in given.items():
        first = beginning.get(name, 0)
        back = next((at for at in range(1, len(steps)) if steps[at] <= steps[at - 1]), None)
        promised = list(range(first, count))
        if back is not None and name in killed:
            begun_again.add(steps[back])
            if (twice := first + back - steps[back]) > queue:
                return f"{name} was given {twice} steps again, where at most {queue} can be unreleased: {steps}"
            promised = list(range(first, first + back)) + list(range(steps[back], count))
        if steps != promised:
            return f"{name} had the steps {steps}"
    if len(begun_again) > 1:
        return f"ranks of one group began again at the steps {sorted(begun_again)}"
    return None
