"""The messages of a conversation."""

from ors.rollouts import Usage


def test_a_sum_with_an_unknown_part_has_no_cost() -> None:
    known = Usage(10, 2, cost=0.5)
    assert Usage() + known + Usage() + known == Usage(20, 4, cost=1.0)
    assert known + Usage(unknown=1) + known == Usage(20, 4, cost=None, unknown=1)
    assert known + Usage(1, 1) == Usage(11, 3)
