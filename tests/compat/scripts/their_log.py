"""Logs rollouts with the SDK of openreward, as its users do. Prints the ids of the rollouts."""

# mypy: ignore-errors

import json

from google.genai import types
from openreward import (
    AssistantMessage,
    OpenReward,
    ReasoningItem,
    SystemMessage,
    ToolCall,
    ToolResult,
    UserMessage,
)
from openreward.models import RolloutInfo, RunInfo


def plain(client: OpenReward) -> str:
    rollout = client.rollout.create(
        run_name="nightly",
        rollout_name="one",
        environment="me/lab",
        variant="lab",
        split="train",
        metadata={"note": "n"},
        task_spec={"n": 3},
        run_info=RunInfo(model_name="their-model", lr=0.5),
    )
    rollout.log(SystemMessage("Be brief."))
    rollout.log(UserMessage("What is 2+3? – ünï"))
    rollout.log(ReasoningItem(content="An addition."))
    rollout.log(AssistantMessage("I submit."))
    rollout.log(ToolCall(name="submit", content='{"answer": 5}', call_id="c1"))
    rollout.log(
        ToolResult("right", "c1"),
        reward=1.0,
        is_finished=True,
        metadata={"grader": "exact"},
        rollout_info=RolloutInfo(task_index=3),
    )
    return rollout.event_id


def anthropic(client: OpenReward) -> str:
    rollout = client.rollout.create(run_name="nightly", environment="lab")
    rollout.log_anthropic_message({"role": "user", "content": "Go."})
    call = {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "wall"}}
    said = [{"type": "thinking", "thinking": "Hm.", "signature": "s"}, {"type": "text", "text": "So."}, call]
    rollout.log_anthropic_message({"role": "assistant", "content": said})
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "a wall"}]}
    rollout.log_anthropic_message({"role": "user", "content": [result]}, reward=0.5)
    return rollout.event_id


def responses(client: OpenReward) -> str:
    rollout = client.rollout.create(run_name="nightly", environment="lab")
    rollout.log_openai_response({"role": "user", "content": "Go."})
    rollout.log_openai_response({"type": "function_call", "name": "look", "arguments": "{}", "call_id": "f1"})
    rollout.log_openai_response({"type": "function_call_output", "call_id": "f1", "output": "a wall"})
    rollout.log_openai_response({"role": "assistant", "content": "A wall."}, reward=0.25)
    return rollout.event_id


def google(client: OpenReward) -> str:
    rollout = client.rollout.create(run_name="nightly", environment="lab")
    call = types.FunctionCall(name="look", args={"at": "wall"}, id="g1")
    answer = types.FunctionResponse(name="look", id="g1", response={"result": "a wall"})
    rollout.log_gdm_message(types.Content(role="model", parts=[types.Part(function_call=call)]))
    content = types.Content(role="user", parts=[types.Part(function_response=answer)])
    rollout.log_gdm_message(content, reward=0.75, is_finished=True)
    return rollout.event_id


def completions(client: OpenReward) -> str:
    """Many messages: the SDK sends them in several batches, over several connections."""
    rollout = client.rollout.create(run_name="long")
    for number in range(150):
        function = {"name": "count", "arguments": json.dumps({"n": number})}
        call = {"id": f"k{number}", "type": "function", "function": function}
        rollout.log_openai_completions({"role": "assistant", "content": None, "tool_calls": [call]})
        result = {"role": "tool", "tool_call_id": f"k{number}", "content": str(number)}
        rollout.log_openai_completions(result, reward=1.0, is_finished=number == 149)
    return rollout.event_id


if __name__ == "__main__":
    client = OpenReward()
    ids = {play.__name__: play(client) for play in (plain, anthropic, responses, google, completions)}
    client.rollout.close()
    print(json.dumps(ids))
