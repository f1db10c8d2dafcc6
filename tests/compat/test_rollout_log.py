"""Scripts that log rollouts with openreward's own SDK go on against our server, which keeps nothing of it."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support import SUPPORT
from tests.support.commands import running
from tests.support.side_venvs import OPENREWARD, SCRIPTS, environ

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
LAB = f"{SUPPORT / 'environments.py'}:Lab"


@pytest.mark.xdist_group("compat")
@pytest.mark.parametrize("flags", [[], ["--workers", "2"]], ids=["alone", "workers"])
def test_a_script_that_logs_with_their_sdk_goes_on(tmp_path: Path, flags: list[str]) -> None:
    folder, keys = tmp_path / "run", {"ORS_API_KEYS": "team=s3cret"}
    with running("serve", LAB, "--port", "0", "--record", str(folder), *flags, env=keys) as server:
        url = server.line(r"Serving on (http://\S+)")[1]
        variables = {"OPENREWARD_API_URL": url, "OPENREWARD_API_KEY": "s3cret"}
        variables |= {"OPENREWARD_DISABLE_UPDATE_CHECK": "1"}
        done = subprocess.run(
            [OPENREWARD.python(), str(SCRIPTS / "their_log.py")],
            env=environ(**variables),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout.splitlines()[-1])) == 5
    assert "uploads disabled" not in done.stdout + done.stderr
    assert "upload failed" not in done.stdout + done.stderr
    assert not (folder / "rollouts").exists()
