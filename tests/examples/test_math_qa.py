import pytest

from examples.math_qa import TASKS
from tests.examples.conftest import Play
from tests.examples.episode import text
from tests.support.raw_http import Raw


def test_its_splits_have_tasks_of_their_own(examples: Raw) -> None:
    assert examples.get("/mathqa/splits").json() == [
        {"name": "train", "type": "train"},
        {"name": "test", "type": "test"},
    ]
    train, test = (
        examples.post("/mathqa/tasks", {"split": split}).json()["tasks"] for split in ("train", "test")
    )
    assert len(train) == 8
    assert len(test) == 4
    assert not {task["question"] for task in train} & {task["question"] for task in test}


def test_every_right_answer_is_rewarded(examples: Raw, play: Play) -> None:
    for split in ("train", "test"):
        listed = examples.post("/mathqa/tasks", {"split": split}).json()["tasks"]
        for index, task in enumerate(TASKS[split]):
            assert listed[index] == {"question": task["question"]}
            episode = play("mathqa", split, index)
            assert episode.prompt()[0]["text"].startswith(task["question"])
            output = episode.call("submit", answer=task["answer"])
            assert (output["reward"], output["finished"]) == (1.0, True)


def test_a_wrong_answer_ends_the_episode_without_reward(play: Play) -> None:
    episode = play("mathqa", "train", 0)
    output = episode.call("submit", answer=41)
    assert (output["reward"], output["finished"]) == (0.0, True)
    assert text(output) == "Wrong: the answer is 42."
    assert episode.refused("submit", answer=42)["reason"] == "episode_finished"


@pytest.mark.parametrize("answer", ["forty-two", None, [42]])
def test_what_is_no_number_may_be_tried_again(play: Play, answer: object) -> None:
    episode = play("mathqa", "train", 0)
    assert episode.refused("submit", answer=answer)["reason"] == "input_validation"
    assert episode.call("submit", answer="42")["reward"] == 1.0
