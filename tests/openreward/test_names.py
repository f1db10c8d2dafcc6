"""The import hook: which names of openreward are found, which are refused, and only where it is installed."""

import subprocess
import sys

from ors.openreward import MODULES, NAMES

HOOK = "from ors.openreward import Names; Names().install()\n"


def ran(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_openreward_is_found_only_where_the_hook_is_installed() -> None:
    assert "No module named 'openreward'" in ran("import ors, ors.openreward, openreward").stderr
    code = "import ors, openreward.environments as e, openreward; print(openreward.__version__, e.TextBlock)"
    assert ran(HOOK + code).stdout == "0.1.167 <class 'ors.types.TextBlock'>\n"


def test_a_name_that_is_not_offered_is_refused_by_name() -> None:
    for code, name in (
        ("from openreward.environments import GroupScore", "openreward.environments.GroupScore"),
        ("import openreward.judging", "openreward.judging"),
        ("from openreward import judging", "openreward.judging"),
        ("import openreward; openreward.Rollout", "openreward.Rollout"),
        ("from openreward.toolsets import PDFToolset", "openreward.toolsets.PDFToolset"),
    ):
        assert ran(HOOK + code).stderr.endswith(
            f"NotOffered: {name} is not offered by ors; only the real openreward has it\n"
        )


def test_every_offered_name_is_there() -> None:
    code = "\n".join(f"from {module} import {name}" for module in MODULES for name in NAMES)
    assert (ran(HOOK + code).stderr, ran(HOOK + "from openreward.environments import *").stderr) == ("", "")
