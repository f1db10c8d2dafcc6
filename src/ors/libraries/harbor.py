"""Task folders of Harbor (task.toml, instruction.md, tests, solution), played in a sandbox of ours."""

import base64
import io
import json
import logging
import math
import shlex
import tarfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path
from posixpath import join, normpath
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from ors.errors import InvalidEnvironment
from ors.libraries.seeded import subclass
from ors.sandbox import SandboxSpec, open_sandbox
from ors.sandbox.images import known
from ors.toolsets import Bash, Files, SandboxEnvironment, Submit
from ors.types import JSONObject

MB = 2**20
TEST_SECONDS, MEMORY_MB, WORKDIR = 600.0, 2048, "/app"
WITHOUT_EFFECT = ("CMD", "EXPOSE", "LABEL")
NO_REWARD = 3
# In a sandbox where the agent has never been, over a copy of its working folder.
VERIFY = f"""
rm -rf /tests /logs/verifier; mkdir -p /logs/verifier /logs/agent
mv tests /tests && chmod -R u+x /tests && cd "$1" || exit 1
PYTHONPATH=/tests bash /tests/test.sh > /logs/verifier/test-stdout.txt 2>&1
[ $? -lt 128 ] || exit 1
for file in reward.json reward.txt; do [ -f /logs/verifier/$file ] && exec cat /logs/verifier/$file; done
exit {NO_REWARD}
"""
UNPACK = "mkdir -p /solution && base64 -d <<'END' | tar xz -C /solution\n{}\nEND\nbash /solution/solve.sh"
log = logging.getLogger(__name__)


@dataclass
class Task:
    """A task folder, as its task.toml and its Dockerfile describe it."""

    folder: Path
    about: dict[str, Any]
    image: str = ""
    workdir: str = "/"
    env: dict[str, str] = field(default_factory=dict)
    copies: list[tuple[Path, str]] = field(default_factory=list)
    """Files and folders of the Dockerfile's folder, each with its path in the sandbox."""
    built: bool = False
    """Whether the image has all that the Dockerfile adds."""

    @classmethod
    def read(cls, folder: Path, image: str | None) -> "Task":
        """Reads a task. With an image, commands of the Dockerfile count as run, and files as copied."""
        try:
            about = tomllib.loads((folder / "task.toml").read_text())
        except (OSError, ValueError) as error:
            raise InvalidEnvironment(f"{folder}/task.toml cannot be read: {error}") from None
        place = about.get("environment", {})
        image = image or place.get("docker_image")
        task = cls(folder, about, image or "", built=bool(image))
        if about.get("steps") or list((folder / "environment").glob("docker-compose.y*ml")):
            raise InvalidEnvironment(f"{folder.name}: tasks of several steps or containers cannot be played")
        if (dockerfile := folder / "environment" / "Dockerfile").exists():
            for word, rest in _instructions(dockerfile.read_text()):
                task._follow(word, rest)
        task.workdir = place.get("workdir") or (task.workdir if task.workdir != "/" else WORKDIR)
        return task

    def _follow(self, word: str, rest: str) -> None:
        if word == "FROM" and not self.image:
            self.image = next(each for each in rest.split() if not each.startswith("--"))
        elif word == "WORKDIR" and "$" not in rest:
            self.workdir = normpath(join(self.workdir, rest.strip('"')))
        elif word == "ENV":
            pairs = shlex.split(rest) if "=" in rest.split()[0] else [rest.replace(" ", "=", 1)]
            self.env |= dict(each.split("=", 1) for each in pairs)
        elif word == "COPY" and "--from" not in rest and "<<" not in rest and "[" not in rest:
            self.copies += [] if self.built else self._copied(shlex.split(rest))
        elif not self.built and word not in WITHOUT_EFFECT:
            what = f"{word} {rest}".split("\n")[0][:60]
            how = "set the parameter image to one that has been built"
            raise InvalidEnvironment(f"{self.folder.name}: its Dockerfile says {what!r}: {how}")

    def _copied(self, words: list[str]) -> Iterator[tuple[Path, str]]:
        *sources, target = [word for word in words if not word.startswith("--")]
        base, into = self.folder / "environment", normpath(join(self.workdir, target))
        for source in sources:
            if not (found := sorted(glob(source.lstrip("/") or ".", root_dir=base))):
                raise InvalidEnvironment(f"{self.folder.name}: there is no {source} to copy")
            inside = len(sources) + len(found) > 2 or target.endswith("/") or into == self.workdir
            for path in (base / name for name in found):
                yield path, join(into, path.name) if inside and path.is_file() else into

    def spec(self, network: Literal["none", "host"]) -> SandboxSpec:
        # Without the image that FROM names, the host's own root stands for it.
        image = self.image if self.built or known(self.image) else None
        memory = int(self.about.get("environment", {}).get("memory_mb") or MEMORY_MB) * MB
        place: Any = {"image": image, "workdir": self.workdir, "network": network}
        return SandboxSpec(writable=True, env=self.env, memory=memory, processes=512, **place)


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, _, rest = line.strip().partition(" ")
        if word:
            yield word.upper(), rest.strip()


class HarborTasks(SandboxEnvironment):
    """Tasks of Harbor. `submit` runs the tests over a copy of the working folder, in a second sandbox."""

    toolsets = [Bash, Files, Submit]
    root: ClassVar[Path]

    class Config(BaseModel):
        image: str | None = Field(default=None, description="Image of all tasks, built before.")
        network: Literal["none", "host"] = "none"

    @classmethod
    def list_splits(cls) -> list[str]:
        cls.list_tasks("test")  # raises if none can be played
        return ["test"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        found: list[JSONObject] = []
        for folder in _folders(cls.root):
            try:
                Task.read(folder, cls.config.image)
                found.append({"task": folder.name})
            except InvalidEnvironment as error:
                log.warning("left out: %s", refused := error)
        if not found:
            raise refused
        return found

    @classmethod
    def _task(cls, spec: JSONObject) -> Task:
        folders = {folder.name: folder for folder in _folders(cls.root)}
        if (folder := folders.get(str(spec.get("task")))) is None:
            raise ValueError(f"there is no task {spec.get('task')!r} in {cls.root.name}")
        return Task.read(folder, cls.config.image)

    async def setup(self) -> None:
        self._read = self._task(self.task_spec)
        self.box = await open_sandbox(self._read.spec(self.config.network))
        for local, path in self._read.copies:
            await self.box.upload(local, path)

    def get_prompt(self) -> str:
        text = (self._read.folder / "instruction.md").read_text().strip()
        return f"{text}\n\nYou work in {self._read.workdir}. Call the tool submit when you have finished."

    async def grade(self) -> float:
        tests = self._read.folder / "tests"
        files = {f"tests/{path.relative_to(tests)}": path for path in tests.rglob("*") if path.is_file()}
        given = self._read.about.get("verifier", {}).get("env", {})
        script = "".join(f"export {key}={shlex.quote(str(given[key]))}\n" for key in given) + VERIFY
        seconds = float(self._read.about.get("verifier", {}).get("timeout_sec") or TEST_SECONDS)
        argv = ["bash", "-c", script, "bash", self._read.workdir]
        done = await self.box.grade(argv, files=files, timeout=seconds)
        if done.returncode == NO_REWARD:
            raise RuntimeError("the tests wrote neither /logs/verifier/reward.txt nor reward.json")
        return _reward(done.stdout) if done.returncode == 0 else 0.0  # killed, or at a limit

    @classmethod
    def solve(cls, task_spec: JSONObject) -> list[tuple[str, JSONObject]]:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            archive.add(cls._task(task_spec).folder / "solution", ".")
        command = UNPACK.format(base64.encodebytes(packed.getvalue()).decode())
        return [("bash", {"command": command, "timeout": 600.0}), ("submit", {})]


def _reward(written: bytes) -> float:
    """The reward of a file: a number, or named numbers, of which `reward` counts, or else their mean."""
    try:
        reward = float(written)
    except ValueError:
        named = json.loads(written)
        reward = float(named["reward"] if "reward" in named else sum(named.values()) / len(named))
    if not math.isfinite(reward):
        raise ValueError(f"the tests wrote the reward {reward}")
    return reward


def _folders(root: Path) -> list[Path]:
    found = sorted(path.parent for path in root.glob("*/task.toml"))
    return [root] if (root / "task.toml").is_file() else found


def environment(name: str) -> Any:
    root = Path(name).resolve()
    if not (folders := _folders(root)):
        raise InvalidEnvironment(f"harbor:{name}: no task.toml in this folder, nor in the folders in it")
    solved = all((each / "solution" / "solve.sh").is_file() for each in folders)
    more = {} if solved else {"solve": None}
    return subclass(HarborTasks, f"harbor-{root.name}", root=root, **more)


def names() -> list[str]:
    raise InvalidEnvironment("harbor: needs a folder, as in harbor:tasks/hello-world")
