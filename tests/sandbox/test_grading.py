"""Programs that are graded by what they print."""

import asyncio

import pytest

from ors.sandbox import GradedCases, Sandbox
from ors.sandbox.grading import CASES_AT_ONCE, run_cases

DOUBLE = b"print(2 * int(input()))\n"
CASES: list[tuple[str | bytes, str | bytes]] = [("1", "2"), ("20", "40\n"), (b"-3\n", b"-6\n"), ("0", "0")]


async def graded(box: Sandbox, program: bytes, *, timeout: float = 10, exact: bool = False) -> GradedCases:
    await box.write_file("program.py", program)
    return await box.grade_cases(["python3", "program.py"], CASES, timeout=timeout, exact=exact)


async def test_the_cases_that_passed_are_told_in_their_order(box: Sandbox) -> None:
    right = await graded(box, DOUBLE)
    assert (right.passed, right.all, right.share) == ((True,) * 4, True, 1.0)
    wrong = await graded(box, b"n = int(input())\nprint(2 * n if n > 0 else 1)\n")
    assert wrong.passed == (True, True, False, False)
    assert wrong.reasons == ("", "", "wrong output", "wrong output")
    assert (wrong.all, wrong.share) == (False, 0.5)
    assert (bool(right), bool(wrong), list(wrong)) == (True, False, [True, True, False, False])


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (b"import os; print('PASSED 4 4', flush=True); os._exit(0)", "wrong output"),
        (b"import os; os._exit(0)", "wrong output"),
        (DOUBLE + b"raise SystemExit(3)", "exit status 3"),
        (DOUBLE + b"import os; os.kill(os.getpid(), 9)", "exit status -9"),
        (DOUBLE + b"print(end='', flush=True)\nwhile True: pass", "time"),
        (b"while True: print('x' * 9999)", "output"),
        (b"kept = []\nwhile True: kept.append(b'x' * 2**20)", "memory"),
    ],
)
async def test_a_program_that_fails_is_told_why(box: Sandbox, program: bytes, reason: str) -> None:
    seconds = 3 if reason == "time" else 30
    assert set((await graded(box, program, timeout=seconds)).reasons) == {reason}


async def test_white_space_at_the_end_counts_only_if_the_comparison_is_exact(box: Sandbox) -> None:
    program = b"print(2 * int(input()), ' ')\nprint()\n"
    assert (await graded(box, program)).all
    assert not any((await graded(box, program, exact=True)).passed)
    assert (await graded(box, DOUBLE, exact=True)).passed == (False, True, True, False)
    await box.write_file("two", b"a  b")
    assert not (await box.grade_cases(["cat", "two"], {"": "a b"})).all


async def test_each_case_has_a_sandbox_of_its_own_with_the_same_work(box: Sandbox) -> None:
    await box.write_file("helper.py", b"BASE = 2")
    await box.write_file("/tmp/left", b"behind")
    script = (
        "ls -A /tmp; python3 -c 'import helper; print(helper.BASE)'; cat seen; echo x | tee seen /tmp/seen"
    )
    assert (await box.grade_cases(script, [("", "2\nx\n")] * 6)).all


async def test_no_more_than_a_few_sandboxes_are_open_at_once(box: Sandbox) -> None:
    now = most = 0

    class Counted:
        async def __aenter__(self) -> Sandbox:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            return box

        async def __aexit__(self, *_: object) -> None:
            nonlocal now
            now -= 1

    async def grader() -> Sandbox:
        return Counted()  # type: ignore[return-value]

    assert (await run_cases(grader, ["cat"], [("a", "a")] * 30, 10, False)).all
    assert most == CASES_AT_ONCE
    assert now == 0


async def test_no_cases_are_a_mistake_and_not_a_success(box: Sandbox) -> None:
    with pytest.raises(ValueError, match="at least one case"):
        await box.grade_cases(["true"], [])
