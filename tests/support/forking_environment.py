"""An environment whose tools start processes."""

import multiprocessing
import subprocess
import sys
import time

from ors import Blocks, Environment, JSONObject, TextBlock, ToolOutput, tool

FOR_EVER = 97.0
INHERITED = """
import os
for number in sorted(map(int, os.listdir("/proc/self/fd"))):
    if os.path.exists(f"/proc/self/fd/{number}"):
        print(number, os.path.realpath(f"/proc/self/fd/{number}"))
print(*(name for name in os.environ if name.startswith("ORS_")))
"""


def said(text: object) -> ToolOutput:
    return ToolOutput(blocks=[TextBlock(text=str(text))])


class Forking(Environment):
    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{}]

    def get_prompt(self) -> Blocks:
        return [TextBlock(text="Go forth and multiply.")]

    @tool
    def leave_a_child(self) -> ToolOutput:
        """Starts a process that outlives the server; gives its number."""
        made = subprocess.run(
            "sleep 97 >/dev/null 2>&1 & echo $!",
            shell=True,
            close_fds=False,  # as os.system does it
            capture_output=True,
            text=True,
            check=True,
        )
        return said(made.stdout)

    @tool
    def inherited(self) -> ToolOutput:
        """What a child finds: its descriptors, and variables of ours."""
        made = subprocess.run(
            [sys.executable, "-c", INHERITED],
            close_fds=False,  # as os.system does it
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return said(made.stdout)

    @tool
    def terminate(self) -> ToolOutput:
        """Terminates a process of multiprocessing's; gives its exit code."""
        process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(FOR_EVER,))
        process.start()
        process.terminate()
        process.join()
        return said(process.exitcode)
