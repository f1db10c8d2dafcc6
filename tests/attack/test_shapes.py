"""HTTP shapes, well-formed and not, on four front ends alike."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.attack.conftest import Scale, Tally
from tests.attack.fronts import KEY, NAMES, WORKERS, Front, front
from tests.attack.shapes import ACCESS, LAST, OPEN, SID, Shape
from tests.attack.wire import Hung, Malformed, answers, talk
from tests.support.scale import LONG

pytestmark = pytest.mark.xdist_group("attack-shapes")

MOST_PIECES = 200
GROWTH_MB = 100
Fronts = Sequence[Front]


@pytest.fixture(scope="module")
def fronts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fronts]:
    """All four, with or without a key."""
    key = getattr(request, "param", "")
    with ExitStack() as stack, ThreadPoolExecutor(4) as pool:
        made = [front(name, tmp_path_factory.mktemp(name), key=key) for name in NAMES]
        yield list(pool.map(stack.enter_context, made))


def came(where: Front, shape: Shape, sid: str, cuts: random.Random | None) -> str:
    """Returns the outcome of a shape, sent at once or in pieces."""
    sent = shape.sent.replace(SID, sid.encode())
    pieces = [sent if shape.half_close else sent + LAST]
    if cuts is not None:
        places = sorted(cuts.randrange(len(pieces[0]) + 1) for _ in range(cuts.randrange(1, MOST_PIECES)))
        pieces = [pieces[0][a:b] for a, b in zip([0, *places], [*places, None], strict=True)]
    try:
        heard = talk((where.raw.host, where.raw.port), pieces, half_close=shape.half_close)
        return shape.outcome(answers(heard, shape.bodiless))
    except Hung as error:
        return _stays(shape, error)
    except Malformed as error:
        return f"malformed: {error}"


def _stays(shape: Shape, hung: Hung) -> str:
    try:
        given = answers(hung.heard, shape.bodiless)
    except Malformed:
        return f"hangs: {hung}"
    return " ".join([*(str(answer.status) for answer in given), "stays"])


def held_against(shape: Shape, fronts: Fronts, scale: Scale) -> int:
    """Tries a shape on all front ends, at once and cut into pieces; gives how often."""
    tries = [(f, sid, n) for f in fronts for sid in f.sids for n in range(scale.of(1, 10) + 1)]

    def one(of: tuple[Front, str, int]) -> str:
        where, sid, n = of
        return came(where, shape, sid, random.Random(f"{scale.seed}.{n}.{shape.name}") if n else None)

    with ThreadPoolExecutor(len(fronts)) as pool:
        outcomes = list(pool.map(one, tries))
    found = "\n".join(sorted({f"{of[0].name}: {text}" for of, text in zip(tries, outcomes, strict=True)}))
    told = f"{shape.name}, expected {shape.expected!r}, came to\n{found}"
    for (where, _, _), outcome in zip(tries, outcomes, strict=True):
        assert outcome in shape.right(where.name), told
    alike = {shape.alike(of[0].name, text) for of, text in zip(tries, outcomes, strict=True)} - {""}
    assert len(alike) < 2, f"front ends do not agree: {told}"
    return len(tries)


@pytest.fixture(scope="module")
def counts() -> Counter[str]:
    """How often shapes were tried, by the kind of front end."""
    return Counter()


@pytest.mark.parametrize("shape", OPEN if LONG else OPEN[::4], ids=lambda shape: shape.name)
def test_a_shape_comes_to_the_same_everywhere(
    fronts: Fronts, shape: Shape, scale: Scale, counts: Counter[str]
) -> None:
    counts["requests"] += held_against(shape, fronts, scale)
    counts["shapes"] += 1


def test_front_ends_that_were_tried_live_and_have_logged_no_fault(
    fronts: Fronts, counts: Counter[str], tally: Tally
) -> None:
    held_up(fronts)
    tally("HTTP shapes on server, workers, router, ASGI", told(counts))


@pytest.mark.parametrize("fronts", [KEY], indirect=True)
@pytest.mark.parametrize("shape", ACCESS, ids=lambda shape: shape.name)
def test_a_shape_comes_to_the_same_at_every_front_end_with_a_key(
    fronts: Fronts, shape: Shape, scale: Scale, counts: Counter[str]
) -> None:
    counts["requests with keys"] += held_against(shape, fronts, scale)
    counts["shapes with keys"] += 1


@pytest.mark.parametrize("fronts", [KEY], indirect=True)
def test_front_ends_with_a_key_that_were_tried_live_and_have_logged_no_fault(
    fronts: Fronts, counts: Counter[str], tally: Tally
) -> None:
    held_up(fronts)
    tally("the same with keys and a foreign page", told(counts, " with keys"))


def held_up(fronts: Fronts) -> None:
    """All are there, as large as before, and have logged no stack trace."""
    for where in fronts:
        assert where.healthy(), where.log()
        most = GROWTH_MB * (WORKERS if where.name == "workers" else 1)
        assert where.megabytes < where.at_first + most, where.name
        assert "Traceback" not in where.log(), where.log()[-3000:]


def told(counts: Counter[str], kind: str = "") -> str:
    return f"{counts['shapes' + kind]} shapes, {counts['requests' + kind]} times: as the table says, no 5xx"
