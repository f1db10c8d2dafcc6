"""What `ors serve` and the others accept as code, and how they say that it is wrong."""

import json
from pathlib import Path

import pytest

from tests.support.commands import run, running

pytestmark = pytest.mark.long

ENVIRONMENT = """\
from ors import Environment, TextBlock, ToolOutput, tool
from neighbour import TASKS

class {name}(Environment):
    @classmethod
    def list_splits(cls):
        return ["train"]
    @classmethod
    def list_tasks(cls, split):
        return TASKS
    def get_prompt(self):
        return [TextBlock(text="?")]
    @tool
    def submit(self, answer: int) -> ToolOutput:
        "Submit."
        return ToolOutput(blocks=[])
"""
LINES = len(ENVIRONMENT.splitlines())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two environments in a file, with a neighbour; a package; files that must not be imported."""
    (tmp_path / "neighbour.py").write_text("TASKS = [{'n': 1}]")
    (tmp_path / "two.py").write_text(ENVIRONMENT.format(name="One") + "class Two(One):\n    pass\n")
    package = tmp_path / "src" / "pack"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from pack.inner import Three\n")
    (package / "inner.py").write_text(ENVIRONMENT.format(name="Three").replace("neighbour", ".tasks"))
    (package / "tasks.py").write_text("TASKS = []")
    (tmp_path / "script.py").write_text("raise SystemExit('imported')")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_two.py").write_text("import ors\nraise SystemExit('imported')")
    return tmp_path


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("two", ["one", "two"]),
        ("two:Two", ["two"]),
        ("two.py", ["one", "two"]),
        ("two.py:One", ["one"]),
        ("./src/pack/inner.py", ["three"]),
        ("src/pack/__init__.py", ["three"]),
        ("src", ["three"]),
        (".", ["one", "three", "two"]),
    ],
)
def test_environments_are_found_by_module_file_class_and_folder(
    folder: Path, target: str, names: list[str]
) -> None:
    done = run("list", target, "--json", cwd=folder)
    assert done.err == ""
    assert sorted(one["name"] for one in done.json) == names


def test_a_file_may_be_named_like_a_module_of_python(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text(
        ENVIRONMENT.format(name="One").replace("from neighbour import TASKS", "TASKS = []")
    )
    assert [one["name"] for one in run("list", str(tmp_path / "json.py"), "--json").json] == ["one"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import nothing_like_it\n", "ModuleNotFoundError: No module named 'nothing_like_it' (env.py:1)"),
        ("\n\nx = = 1\n", "SyntaxError: invalid syntax (env.py:3)"),
        ("\nraise RuntimeError('first\\nsecond')\n", "RuntimeError: first second (env.py:2)"),
        ("def f():\n    return {}['k']\n\nf()\n", "KeyError: 'k' (env.py:2)"),
        ("import json\n\njson.loads('{')\n", "(env.py:3)"),
        ("import sys\nsys.exit(7)\n", "SystemExit: 7 (env.py:2)"),
        ("import broken\n", "ZeroDivisionError: division by zero (broken.py:2)"),
    ],
)
def test_a_target_that_cannot_be_imported_says_why_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "env.py").write_text(text)
    (tmp_path / "broken.py").write_text("\n1 / 0\n")
    done = run("serve", "env.py", cwd=tmp_path)
    assert done.code == 3
    assert done.err.startswith("Error: Cannot import env.py: ")
    assert done.err.endswith(said + "\n")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("more", "target", "said"),
    [
        ("", "env.py:Nope", "env.py has no Nope. Environments: One"),
        (
            "class Plain:\n    pass\n",
            "env.py:Plain",
            f"does not derive from ors.Environment (env.py:{LINES + 1})",
        ),
        ("number = 3\n", "env.py:number", "does not derive from ors.Environment"),
        (
            "import abc\nclass Half(One):\n    @abc.abstractmethod\n    def more(self): ...\n",
            "env.py:Half",
            f"Half does not define more (env.py:{LINES + 2})",
        ),
        (
            "class Loose(One):\n    @tool\n    def look(self):\n        'Looks.'\n",
            "env.py:Loose",
            "Loose.look: a tool needs a return annotation, such as `-> ToolOutput` or `-> str` "
            f"(env.py:{LINES + 2})",
        ),
        (
            "class Vague(One):\n    @tool\n    def look(self, at) -> ToolOutput:\n        'Looks.'\n",
            "env.py:Vague",
            f"Vague.look: the parameter 'at' needs a type annotation (env.py:{LINES + 2})",
        ),
        ("class Health(One):\n    pass\n", "env.py", f"(env.py:{LINES + 1})"),
        (
            "class Bad(One):\n    @classmethod\n    def list_splits(cls):\n        return 1 / 0\n",
            "env.py:Bad",
            f"ZeroDivisionError: division by zero (env.py:{LINES + 4})",
        ),
    ],
)
def test_an_environment_that_is_written_wrongly_says_where(
    tmp_path: Path, more: str, target: str, said: str
) -> None:
    text = ENVIRONMENT.format(name="One").replace("from neighbour import TASKS", "TASKS = []") + more
    (tmp_path / "env.py").write_text(text)
    done = run("serve", target, cwd=tmp_path)
    assert done.code == 3
    assert said in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        ("nofile.py", 3, "No such file or folder: nofile.py"),
        ("empty", 3, "No environment in empty"),
        ("notes.md", 2, "'notes.md' is not a Python file"),
        ("json", 3, "No environment in json"),
        ("http://127.0.0.1:8080", 2, "is a URL"),
    ],
)
def test_a_target_without_environments_says_so(tmp_path: Path, target: str, code: int, said: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.md").write_text("Notes.")
    done = run("serve", target, cwd=tmp_path)
    assert done.code == code
    assert said in done.err


def test_two_files_of_one_name_are_both_served_and_two_packages_of_one_name_are_told(tmp_path: Path) -> None:
    for name in ("a", "b"):
        package = tmp_path / name / "pack"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        text = ENVIRONMENT.format(name=f"In{name}").replace("from neighbour import TASKS", "TASKS = []")
        (package / "env.py").write_text(text)
        (tmp_path / name / "env.py").write_text(text)
    with running("serve", "a/env.py", "b/env.py", "--port", "0", "--json", cwd=tmp_path) as server:
        told = json.loads(server.line("^{.*}$")[0])
        assert [one["name"] for one in told["environments"]] == ["ina", "inb"]
    done = run("serve", "a/pack/env.py", "b/pack/env.py", cwd=tmp_path)
    assert done.code == 3
    assert "another module pack.env is loaded: a/pack/env.py" in done.err


def test_two_environments_of_one_name_are_both_named_with_their_files(tmp_path: Path) -> None:
    text = ENVIRONMENT.format(name="Same").replace("from neighbour import TASKS", "TASKS = []")
    (tmp_path / "a.py").write_text(text)
    (tmp_path / "b.py").write_text("\n" + text)
    done = run("serve", "a.py", "b.py", cwd=tmp_path)
    both = f"Same ({tmp_path}/a.py:4) and Same ({tmp_path}/b.py:5)"
    assert done.code == 3
    assert done.err == f"Error: two environments are named 'same', {both}; override name() of one\n"
