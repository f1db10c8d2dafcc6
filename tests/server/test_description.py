"""`GET /-/environments/{name}`: what an environment says about itself."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from ors import Environment, Server, tool
from ors.client import ORS
from ors.sandbox import Pool, SandboxSpec
from ors.server.admin.environments import _authors, _licence
from ors.toolsets import Bash, SandboxEnvironment
from tests.support.in_process_cluster import routing
from tests.support.live_server import serving
from tests.support.raw_http import Raw
from tests.support.waiting import wait_until
from tests.test_identity import identity


class Shelf(Environment):
    """Has books.

    And boxes.
    """

    tasks = {"train": [{"n": n} for n in range(3)], "extra": "missing.jsonl"}
    required_secrets = ["library_card"]
    reward_range = (0, 2)
    reward_components = {"found": "Whether it was found."}

    class Config(BaseModel):
        height: int = 3

    def get_prompt(self) -> str:
        return "Find it."

    @tool
    def find(self, title: str) -> str:
        """Find a book."""
        return title

    @tool(shared=False)
    def climb(self) -> str:
        """Climb up."""
        return ""


class Box(SandboxEnvironment):
    toolsets = [Bash]
    tasks = {"train": [{}]}
    sandbox = Pool(SandboxSpec(memory=64 * 2**20, disk=2**20, tmp=2**20, network="host"))

    def get_prompt(self) -> str:
        return "Look."


def test_an_environment_says_what_it_is() -> None:
    with serving(Server([Shelf, Box])) as url:
        told: dict[str, Any] = Raw(url).get("/-/environments/Shelf").json()
        box = Raw(url).get("/-/environments/box").json()
        assert Raw(url).get("/-/environments/other").status == 404
    assert told["description"] == "Has books.\n\nAnd boxes."
    assert [(each["name"], each["num_tasks"]) for each in told["splits"]] == [("train", 3), ("extra", None)]
    assert [each["name"] for each in told["tools"]] == ["find"]
    assert [each["name"] for each in told["task_tools"]] == ["climb"]
    assert told["terminal_tool"] is None
    assert (told["reward_range"], told["reward_components"]) == ([0, 2], Shelf.reward_components)
    assert told["required_secrets"] == ["library_card"]
    assert told["parameters"]["schema"]["properties"]["height"]["default"] == 3
    assert told["parameters"]["values"] == {"height": 3}
    assert (told["version"], told["license"], told["authors"]) == (None, None, [])
    assert told["hash"] == identity("tests.server.test_description:Shelf", Path(__file__).parents[2])[1]
    assert told["needs"] == {"sandbox": False, "network": None, "memory": None}
    assert box["needs"] == {"sandbox": True, "network": True, "memory": 64 * 2**20}
    assert "parameters" not in box


def test_a_router_and_keys_are_in_front_of_it_and_a_client_reads_it() -> None:
    with serving(Server([Shelf], api_keys=["k3y"])) as url, routing([url], "k3y") as router:
        wait_until(lambda: router.get("/-/health/ready").status == 200)
        assert router.get("/-/environments/shelf").status == 401
        with ORS(router.url, "k3y") as client:
            told = client.environment("shelf").description(counts=False)
    assert told is not None
    assert told["name"] == "shelf"
    assert "num_tasks" not in told["splits"][0]


def test_what_a_server_does_not_have_is_no_error_of_a_client() -> None:
    with serving(Server([Shelf])) as url, ORS(url) as client:
        assert client.environment("nowhere").description() is None


@pytest.mark.parametrize(
    ("lines", "licence", "authors"),
    [
        ("License-Expression: MIT\nAuthor-email: A B <a@b.c>, d@e.f", "MIT", ["A B", "d@e.f"]),
        ("License: BSD\nAuthor: A B", "BSD", ["A B"]),
        ("Classifier: License :: OSI Approved :: MIT License", "MIT License", []),
        ("License: Apache\n        Version 2", "Apache", []),
        ("Summary: x", None, []),
    ],
)
def test_licence_and_authors_come_from_the_metadata(
    lines: str, licence: str | None, authors: list[str], tmp_path: Path
) -> None:
    from importlib.metadata import Distribution

    folder = tmp_path / "x-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: x\nVersion: 1\n{lines}\n")
    (found,) = Distribution.discover(path=[str(tmp_path)])
    assert (_licence(found), _authors(found)) == (licence, authors)
