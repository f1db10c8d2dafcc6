"""A page of the documentation, run as a reader would: files written, commands typed, code executed."""

import importlib
import inspect
import os
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ors import Environment, Server
from tests.support.commands import variables
from tests.support.live_server import serving

ROOT = Path(__file__).parents[2]
ADDRESS = "http://127.0.0.1:8080"
"""The address of pages, in place of which a server of the page's environments is used."""


def fences(page: str) -> list[tuple[str, str]]:
    """The blocks of a page: language and content."""
    found = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    return [(language, content) for language, content in found]


def files(page: str, folder: Path) -> None:
    """Writes the files of a page into a folder, those for other packages too."""
    for language, content in fences(page):
        if language in ("python", "text") and (named := _file_name(content)):
            (folder / named).write_text(content)


def _file_name(content: str) -> str | None:
    found = re.match(r"# (\S+\.py)\n", content)
    return None if found is None else found[1]


@dataclass
class Reader:
    """Follows a page from top to bottom, in a folder of its own. Python blocks share one namespace.

    A block whose first line is a comment with a file name is that file.
    """

    page: str
    folder: Path
    namespace: dict[str, Any] = field(default_factory=lambda: {"__name__": "page"})
    url: str | None = None
    printed: str = ""

    def __post_init__(self) -> None:
        self._open = ExitStack()
        self._modules = set(sys.modules)

    def __enter__(self) -> Self:
        self._back = Path.cwd()
        os.chdir(self.folder)
        sys.path.insert(0, str(self.folder))
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._open.close()
        os.chdir(self._back)
        sys.path.remove(str(self.folder))
        for name in {path.stem for path in self.folder.glob("*.py")} - self._modules:
            sys.modules.pop(name, None)

    def python(self) -> None:
        """Runs all Python blocks, and compares what they print with their comments."""
        for language, content in fences(self.page):
            if language == "python":
                self.block(content)

    def serve(self) -> str:
        """Serves the environments of the page so far; returns the URL."""
        if self.url is None:
            self.url = self._open.enter_context(serving(Server(self._environments())))
        return self.url

    def block(self, content: str) -> None:
        """Writes the block as a file, or runs it."""
        if named := _file_name(content):
            (self.folder / named).write_text(content)
            return
        output = StringIO()
        with redirect_stdout(output):
            exec(self._here(content), self.namespace)
        self.printed += output.getvalue()
        if expected := re.findall(r"print\(.*\)  # (.*)$", content, re.MULTILINE):
            assert output.getvalue().splitlines() == expected

    def _here(self, content: str) -> str:
        return content.replace(ADDRESS, self.serve()) if ADDRESS in content else content

    def _environments(self) -> list[type[Environment]]:
        everything = list(self.namespace.values())
        importlib.invalidate_caches()
        for path in sorted(self.folder.glob("*.py")):
            if "ors import" in path.read_text() and not path.stem.startswith("test_"):
                everything += vars(importlib.import_module(path.stem)).values()
        return list(dict.fromkeys(value for value in everything if _is_environment(value)))

    def shell(self, line: str, url: str | None = None) -> str:
        """Runs a command of the page, which must succeed; returns what it prints."""
        scripts = self.folder / ".bin"
        scripts.mkdir(exist_ok=True)
        for name, module in (("ors", "ors"), ("pytest", "pytest")):
            script = scripts / name
            script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m {module} "$@"\n')
            script.chmod(0o755)
        more = {
            "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
            "PYTEST_ADDOPTS": "-p no:cacheprovider -o asyncio_mode=auto",
        }
        done = subprocess.run(
            ["sh", "-c", line.replace(ADDRESS, url or ADDRESS)],
            cwd=self.folder,
            env=variables(more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def _is_environment(value: Any) -> bool:
    return (
        inspect.isclass(value)
        and issubclass(value, Environment)
        and value.__module__ not in ("ors.environment", "ors.toolsets.environment")
        and not inspect.isabstract(value)
    )
