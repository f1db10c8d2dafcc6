"""An environment that does not want its process to end."""

import asyncio
import sys
import threading
import time

from ors import Blocks, Environment, JSONObject, TextBlock, ToolOutput, tool

FOR_EVER = 1000.0


def cling() -> None:
    """Stays where it is."""
    time.sleep(FOR_EVER)


def done() -> ToolOutput:
    return ToolOutput(blocks=[TextBlock(text="done")])


class Clinging(Environment):
    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{}]

    def get_prompt(self) -> Blocks:
        return [TextBlock(text="Let go.")]

    @tool(concurrent=True)
    async def in_a_thread(self) -> ToolOutput:
        """Waits for a thread of asyncio's."""
        await asyncio.to_thread(cling)
        return done()

    @tool(concurrent=True)
    async def briefly(self) -> ToolOutput:
        """Waits for a thread of asyncio's that does nothing."""
        await asyncio.to_thread(int)
        return done()

    @tool
    async def in_a_thread_of_its_own(self) -> ToolOutput:
        """Starts a thread that Python waits for at exit."""
        threading.Thread(target=cling, name="mine").start()
        return done()

    @tool
    async def against_its_will(self) -> ToolOutput:
        """Cannot be cancelled."""
        while True:
            try:
                await asyncio.sleep(FOR_EVER)
            except asyncio.CancelledError:
                continue

    @tool
    async def on_the_loop(self) -> ToolOutput:
        """Blocks the event loop."""
        print("blocked", file=sys.stderr, flush=True)
        cling()
        return done()
