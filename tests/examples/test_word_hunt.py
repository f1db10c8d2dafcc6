import pytest

from examples.word_hunt import WORDS, marks
from tests.examples.conftest import Play
from tests.examples.episode import text


@pytest.mark.parametrize(
    ("guess", "word", "expected"),
    [
        ("amber", "amber", "GGGGG"),
        ("blaze", "amber", "Y-Y-Y"),
        ("geese", "eagle", "YY--G"),
        ("eerie", "beach", "-G---"),
        ("llama", "lemon", "G--Y-"),
    ],
)
def test_a_letter_is_marked_as_often_as_it_occurs(guess: str, word: str, expected: str) -> None:
    assert marks(guess, word) == expected


def test_a_game_rewards_each_step_and_adds_up_to_one(play: Play) -> None:
    game = play("wordhunt", "train", WORDS["train"].index("grape"))
    assert "5" not in game.prompt()[0]["text"]
    outputs = [game.call("guess", word=word) for word in ("Grass", "grasp", "crate", "grape")]
    assert [output["reward"] for output in outputs] == [0.3, 0.0, 0.1, 0.6]
    assert [output["finished"] for output in outputs] == [False, False, False, True]
    assert [output["metadata"]["guesses_left"] for output in outputs] == [5, 4, 3, 2]
    assert text(outputs[-1]) == "grass GGG--\ngrasp GGG-Y\ncrate -GG-G\ngrape GGGGG\nSolved."


def test_a_game_is_lost_after_six_guesses(play: Play) -> None:
    game = play("wordhunt", "test", 0)
    outputs = [
        game.call("guess", word=word) for word in ("bread", "bride", "bring", "cloud", "horse", "quick")
    ]
    assert [output["finished"] for output in outputs] == [False] * 5 + [True]
    assert sum(output["reward"] for output in outputs) < 0.5
    assert "The word was 'mango'" in text(outputs[-1])


def test_a_refused_guess_costs_nothing(play: Play) -> None:
    game = play("wordhunt", "train", 0)
    game.call("guess", word="eagle")
    assert "guessed before" in game.refused("guess", word="EAGLE")["error"]
    assert game.refused("guess", word="eagles")["reason"] == "input_validation"
    assert game.call("guess", word="beach")["metadata"] == {"guesses_left": 4}


def test_giving_up_ends_the_game(play: Play) -> None:
    output = play("wordhunt", "train", 0).call("give_up")
    assert (output["reward"], output["finished"]) == (0.0, True)


def test_two_games_do_not_share_their_state(play: Play) -> None:
    first, second = play("wordhunt", "train", 0), play("wordhunt", "train", 0)
    first.call("guess", word="eagle")
    assert second.call("guess", word="eagle")["metadata"] == {"guesses_left": 5}
