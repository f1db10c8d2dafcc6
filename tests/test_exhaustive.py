"""A new kind of block, message, outcome or event: mypy names every file that has to know it."""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.copied_tree import changed, copied

PROJECT = Path(__file__).parents[1]
CLASSES = {
    "AudioBlock": """
class AudioBlock(BaseModel, extra="forbid"):
    data: str
    mimeType: str
    detail: JSONObject | None = None
    type: Literal["audio"] = "audio"
""",
    "NoteMessage": """
@dataclass(frozen=True, slots=True)
class NoteMessage:
    note: str
    role: Literal["note"] = "note"
""",
    "Postponed": """
@dataclass(frozen=True, slots=True)
class Postponed:
    type: Literal["postponed"] = "postponed"
""",
    "Overheated": """
class Overheated(NamedTuple):
    degrees: float
""",
    "Suspended": """
class Suspended(NamedTuple):
    sid: str
""",
}
UNIONS = {
    "AudioBlock": ("types.py", "Block = TextBlock | ImageBlock"),
    "NoteMessage": (
        "providers/messages.py",
        "Message = SystemMessage | UserMessage | AgentMessage | ToolMessage",
    ),
    "Postponed": (
        "rollouts/episodes/outcome.py",
        "Outcome = Scored | Unscored | Truncated | Refused | Failed",
    ),
    "Overheated": ("server/observe/events.py", "Event = (\n    SessionOpened"),
    "Suspended": ("server/observe/events.py", "Watched = EpisodeStarted | EpisodeForked"),
}
FILES = {
    "AudioBlock": {
        "types.py",
        "server/episodes/result.py",
        *(f"providers/{name}.py" for name in ("anthropic", "google", "openai", "openai_chat")),
        "models.py",
        "rollouts/records/line.py",
        "rollouts/records/exports.py",
        "adapters/chat.py",
        "cli/output/printing.py",
    },
    "NoteMessage": {
        "rollouts/agents/human.py",
        "models.py",
        "rollouts/records/line.py",
        "rollouts/records/exports.py",
        "rollouts/regression.py",
        "adapters/chat.py",
        "cli/output/runs.py",
    },
    "Postponed": {
        "rollouts/episodes/scoring.py",
        "adapters/training.py",
        "cli/output/runs.py",
        "inspector/run_queries.py",
    },
    "Overheated": {"server/observe/log.py"},
    "Suspended": {"server/admin/live_sessions.py"},
}
NEVER = re.compile(
    r'^ors/(\S+?):\d+: error: Argument 1 to "assert_never" has incompatible type "([^"]+)"', re.M
)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_mypy_names_every_file_that_handles_the_kinds_of_something(tmp_path: Path) -> None:
    tree = copied(tmp_path)
    for name, (file, union) in UNIONS.items():
        first, kinds = union.split(" = ")
        wider = f"{CLASSES[name]}\n\n{first} = {kinds.replace('(', f'({name} |', 1)}"
        changed(tree / file, f"\n{union}", wider if "(" in kinds else f"{wider} | {name}")
    modules = sorted({file for files in FILES.values() for file in files})
    checked = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--config-file",
            PROJECT / "pyproject.toml",
            *(f"ors/{f}" for f in modules),
        ],
        cwd=tmp_path,
        env={"MYPYPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    named: defaultdict[str, set[str]] = defaultdict(set)
    for file, kind in NEVER.findall(checked.stdout):
        named[kind.removeprefix("type[").removesuffix("]")].add(file)
    missing = {kind: files - named[kind] for kind, files in FILES.items() if files - named[kind]}
    assert not missing, checked.stdout + checked.stderr
