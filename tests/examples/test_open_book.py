import threading

from examples.open_book import HANDBOOK
from tests.examples.conftest import Play
from tests.examples.episode import text
from tests.support.raw_http import Raw

OPEN, CHOICE = 0, 1


def test_without_a_task_only_the_toolset_is_listed(examples: Raw) -> None:
    tools = examples.get("/openbook/tools").json()["tools"]
    assert [tool["name"] for tool in tools] == ["read_page", "search"]


def test_each_task_has_the_tool_that_fits_it(play: Play) -> None:
    assert list(play("openbook", "train", OPEN).tools()) == ["read_page", "search", "answer"]
    assert list(play("openbook", "train", CHOICE).tools()) == ["read_page", "search", "choose"]


def test_the_tool_of_another_task_is_refused(play: Play) -> None:
    assert play("openbook", "train", OPEN).refused("choose", option=1)["reason"] == "not_found"
    assert play("openbook", "train", CHOICE).refused("answer", text="colza oil")["reason"] == "not_found"


def test_an_open_question_is_answered_from_the_handbook(play: Play) -> None:
    episode = play("openbook", "train", OPEN)
    page = text(episode.call("search", word="gallery"))
    assert page == "the tower"
    assert "168 steps" in text(episode.call("read_page", title=page))
    output = episode.call("answer", text="168.")
    assert (output["reward"], output["finished"]) == (1.0, True)
    assert output["metadata"] == {"pages_read": ["the tower"]}


def test_an_option_is_chosen_by_its_number(play: Play) -> None:
    episode = play("openbook", "train", CHOICE)
    assert "\n2. colza oil" in episode.prompt()[0]["text"]
    assert "no number 5" in episode.refused("choose", option=5)["error"]
    assert episode.call("choose", option=2)["reward"] == 1.0


def test_a_wrong_answer_is_told_the_right_one(play: Play) -> None:
    output = play("openbook", "test", OPEN).call("answer", text="1989")
    assert (output["reward"], output["finished"]) == (0.0, True)
    assert text(output) == "Wrong: the answer is '1988'."


def test_a_page_that_is_missing_can_be_asked_for_again(play: Play) -> None:
    episode = play("openbook", "train", OPEN)
    assert "the pages are: the lamp" in episode.refused("read_page", title="the cellar")["error"]
    assert text(episode.call("search", word="submarine")) == "No page has it."


def test_pages_read_side_by_side_all_count(play: Play) -> None:
    episode = play("openbook", "train", OPEN)
    readers = [
        threading.Thread(target=episode.call, args=("read_page",), kwargs={"title": title})
        for title in HANDBOOK
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert episode.call("answer", text="?")["metadata"] == {"pages_read": sorted(HANDBOOK)}
