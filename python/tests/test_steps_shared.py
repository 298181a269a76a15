"""Steps that several reading programs share, and groups that lose or are left by a rank."""

from __future__ import annotations

import threading
from typing import Literal

import numpy as np
import pytest
import thalweg
from thalweg import steps

WAIT = 60


def write(driver: thalweg.Driver, name: str, count: int) -> None:
    with steps.Writer(driver, name) as writer:
        for shot in range(count):
            with writer.step() as step:
                step.put("shot", np.full(3, shot))


def shots(reader: steps.Reader) -> list[int]:
    return [int(step["shot"][0]) for step in reader]


@pytest.mark.parametrize("distribution", ["on_demand", "round_robin"])
def test_each_step_is_given_to_one_program(
    driver: thalweg.Driver, name: str, distribution: Literal["on_demand", "round_robin"]
) -> None:
    steps.create_stream(driver, name)
    readers = [
        steps.Reader(driver, name, name="fit", distribution=distribution) for _ in range(3)
    ]
    given: list[list[int]] = [[], [], []]

    def read(index: int) -> None:
        given[index] = shots(readers[index])

    threads = [threading.Thread(target=read, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    write(driver, name, 12)
    for thread in threads:
        thread.join(WAIT)
    for reader in readers:
        reader.close()
    assert sorted(sum(given, [])) == list(range(12))
    if distribution == "round_robin":
        assert given == [list(range(first, 12, 3)) for first in range(3)]


def test_the_step_of_a_program_that_fails_is_given_to_another(driver: thalweg.Driver, name: str) -> None:
    write(driver, name, 3)
    a, b = (steps.Reader(driver, name, name="fit", distribution="on_demand") for _ in range(2))
    with pytest.raises(ZeroDivisionError), a:
        assert int(next(a)["shot"][0]) == 0
        raise ZeroDivisionError
    with b:
        assert sorted(shots(b)) == [0, 1, 2]


def test_ranks_of_a_group_that_shares_have_the_same_steps(driver: thalweg.Driver, name: str) -> None:
    write(driver, name, 4)
    pair = [
        steps.Reader(
            driver, name, name="fit", distribution="on_demand", group="pair", rank=rank, ranks=2
        )
        for rank in range(2)
    ]
    other = steps.Reader(driver, name, name="fit", distribution="on_demand")
    assert int(next(pair[0])["shot"][0]) == 0
    assert int(next(other)["shot"][0]) == 1
    assert int(next(pair[0])["shot"][0]) == 2
    assert [int(next(pair[1])["shot"][0]) for _ in range(2)] == [0, 2]
    for reader in (*pair, other):
        reader.close()


def test_a_rank_that_leaves_holds_nobody(driver: thalweg.Driver, name: str) -> None:
    write(driver, name, 3)
    first, second = (steps.Reader(driver, name, rank=rank, ranks=2) for rank in range(2))
    assert int(next(first)["shot"][0]) == 0
    first.close()
    assert shots(second) == [0, 1, 2]
    second.close()


def test_the_other_ranks_hear_of_one_that_is_gone(driver: thalweg.Driver, name: str) -> None:
    write(driver, name, 2)
    first, second = (
        steps.Reader(driver, name, rank=rank, ranks=2, session_timeout=0.3) for rank in range(2)
    )
    assert int(next(first)["shot"][0]) == 0
    held = next(second)
    second.close(release=False)
    assert held.number == 0
    # It has left a step that the group had: the others go on, and it is given again.
    assert int(next(first)["shot"][0]) == 1
    first.close()
    with steps.Reader(driver, name) as again:
        assert shots(again) == [0, 1]


def test_what_cannot_be_shared_is_refused(driver: thalweg.Driver, name: str) -> None:
    write(driver, name, 1)
    with pytest.raises(thalweg.InvalidArgument, match="round_robin"):
        steps.Reader(driver, name, distribution="random")  # type: ignore[arg-type]
    with pytest.raises(thalweg.InvalidArgument, match="which group"):
        steps.Reader(driver, name, distribution="on_demand", ranks=2)
    with pytest.raises(thalweg.Error, match="newest"):
        steps.Reader(driver, name, distribution="on_demand", latest=True)
    with steps.Reader(driver, name, distribution="on_demand"):
        with pytest.raises(thalweg.Error, match="another way"):
            steps.Reader(driver, name)
