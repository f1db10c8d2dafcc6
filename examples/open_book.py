"""Questions on a handbook: a toolset to read it with, and tools that depend on the task."""

from typing import Annotated

from pydantic import BaseModel, Field

from ors import (
    Blocks,
    Environment,
    JSONObject,
    ListToolsOutput,
    Server,
    TextBlock,
    ToolError,
    ToolOutput,
    Toolset,
    tool,
)

HANDBOOK = {
    "the lamp": "The lamp was lit first on 3 May 1871. It flashes twice every 15 seconds. "
    "Colza oil fed it until 1926; since then it has been electric.",
    "the tower": "The tower stands on Skarv Rock and is 34 metres high. 168 steps lead to the gallery. "
    "Its red and white bands were painted in 1902.",
    "the keepers": "Ingrid Holm was keeper for 29 years, longer than anyone else. "
    "Her diary is kept in the harbour museum. The last keeper left in 1988.",
    "the fog horn": "The horn sounds when the far buoy, 2 miles out, cannot be seen. "
    "It was heard 11 miles away in the storm of 1913.",
}

TASKS: dict[str, list[JSONObject]] = {
    "train": [
        {"question": "How many steps lead to the gallery?", "answer": "168"},
        {
            "question": "What fed the lamp before it was electric?",
            "options": ["whale oil", "colza oil", "paraffin", "gas"],
            "answer": "colza oil",
        },
        {"question": "Who was keeper for the longest time?", "answer": "Ingrid Holm"},
    ],
    "test": [
        {"question": "In which year did the last keeper leave?", "answer": "1988"},
        {
            "question": "How often does the lamp flash?",
            "options": ["once every 15 seconds", "twice every 15 seconds", "twice a minute"],
            "answer": "twice every 15 seconds",
        },
    ],
}


class Library(Toolset):
    """Tools to read the handbook with, for any environment that has `pages_read`."""

    @tool(concurrent=True)
    async def search(self, word: Annotated[str, Field(description="A word to look for.")]) -> str:
        """Find the pages of the handbook on which a word occurs."""
        found = [title for title, text in HANDBOOK.items() if word.lower() in f"{title} {text}".lower()]
        return "\n".join(found) or "No page has it."

    @tool(concurrent=True)
    async def read_page(self, title: Annotated[str, Field(description="As `search` gives it.")]) -> str:
        """Read one page of the handbook."""
        text = HANDBOOK.get(title.lower())
        if text is None:
            raise ToolError(f"There is no page {title!r}; the pages are: {', '.join(HANDBOOK)}")
        self.env.pages_read.add(title.lower())
        return text


class Task(BaseModel):
    """A question; with options it is a multiple-choice one."""

    question: str
    answer: str
    options: list[str] = []


class OpenBook(Environment):
    """A question on the handbook of a lighthouse. The tool to answer with depends on the kind of question."""

    toolsets = [Library]

    tasks = TASKS
    private_fields = ("answer",)  # left out of task listings

    def setup(self) -> None:
        """Reads the task."""
        self.task = Task.model_validate(self.task_spec)
        self.pages_read: set[str] = set()

    def get_prompt(self) -> Blocks:
        """The question, with its options if it has any."""
        options = "".join(f"\n{number}. {option}" for number, option in enumerate(self.task.options, 1))
        return [TextBlock(text=f"Answer from the lighthouse's handbook: {self.task.question}{options}")]

    def list_task_tools(self) -> ListToolsOutput:
        """The one task-specific tool that fits this task."""
        wanted = "choose" if self.task.options else "answer"
        return ListToolsOutput(
            tools=[spec for spec in super().list_task_tools().tools if spec.name == wanted]
        )

    @tool(shared=False)
    def choose(
        self, option: Annotated[int, Field(description="The number of the option.", ge=1)]
    ) -> ToolOutput:
        """Choose one of the options as your final answer. This ends the episode."""
        if option > len(self.task.options):
            raise ToolError(f"There are {len(self.task.options)} options, no number {option}")
        return self._graded(self.task.options[option - 1])

    @tool(shared=False)
    def answer(self, text: Annotated[str, Field(description="A word, a name or a number.")]) -> ToolOutput:
        """Give your final answer in as few words as possible. This ends the episode."""
        return self._graded(text)

    def _graded(self, given: str) -> ToolOutput:
        right = given.strip(" .").casefold() == self.task.answer.casefold()
        verdict = "Correct." if right else f"Wrong: the answer is {self.task.answer!r}."
        return ToolOutput(
            blocks=[TextBlock(text=verdict)],
            metadata={"pages_read": sorted(self.pages_read)},
            reward=float(right),
            finished=True,
        )


if __name__ == "__main__":
    Server([OpenBook]).run()
