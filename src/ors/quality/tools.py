"""Examines tools: their schemas are valid and every provider accepts them."""

from typing import get_args

from ors import ToolSpec
from ors.client import Provider, convert_tools
from ors.errors import ORSError
from ors.quality.subject import EnvironmentUnderTest, reason
from ors.schemas import problems

PROVIDERS = get_args(Provider)


async def examine(subject: EnvironmentUnderTest) -> None:
    """Examines the tools that all tasks share, including the terminal one."""
    try:
        subject.tools = await subject.env.list_tools(terminal=True)
    except ORSError as error:
        subject.report.found("tools", f"tools cannot be listed: {reason(error)}", "Make list_tools() work.")
        return
    subject.report.figures["tools"] = len(subject.tools)
    for tool in subject.tools:
        examine_tool(subject, tool)


def examine_tool(subject: EnvironmentUnderTest, tool: ToolSpec) -> None:
    report = subject.report
    wrong = problems(tool.input_schema)
    for problem in wrong[:3]:
        report.found("schema", f"the input schema of {tool.name!r}: {problem}", "Correct its input schema.")
    if not tool.description.strip():
        report.found(
            "description",
            f"the tool {tool.name!r} has no description",
            "Write a docstring: models use it to decide when to call the tool.",
            level="warning",
        )
    for provider in () if wrong else PROVIDERS:
        try:
            convert_tools([tool], provider)
        except Exception as error:
            report.found(
                "format",
                f"the tool {tool.name!r} cannot be converted for {provider}: {reason(error)}",
                "Simplify its input until every provider accepts it.",
            )
