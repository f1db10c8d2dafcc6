"""What coding agents print when they end, as they printed it to scripted models, and their settings."""

import json
import tomllib

import pytest

from ors.providers.messages import Usage
from ors.rollouts.agents.coding.table import CODING, Said, understood, written

CODEX = """
{"type":"thread.started","thread_id":"01a1edbf"}
{"type":"item.completed","item":{"id":"item_0","type":"error","message":"Model metadata not found."}}
{"type":"item.completed","item":{"id":"item_3","type":"mcp_tool_call","server":"ors","tool":"hint"}}
{"type":"item.completed","item":{"id":"item_5","type":"agent_message","text":"All done."}}
{"type":"turn.completed","usage":{"input_tokens":30,"cached_input_tokens":4,"output_tokens":15}}
"""
CODEX_FAILED = """
{"type":"error","message":"Reconnecting... 5/5 (unexpected status 401 Unauthorized)"}
{"type":"turn.failed","error":{"message":"unexpected status 401 Unauthorized: this key is refused"}}
"""
GEMINI = """
{"type":"init","session_id":"1e0305d6","model":"scripted"}
{"type":"message","role":"user","content":"Solve it."}
{"type":"message","role":"assistant","content":"I ask.","delta":true}
{"type":"tool_use","tool_name":"mcp_ors_hint","tool_id":"1","parameters":{}}
{"type":"tool_result","tool_id":"1","status":"success","output":"It is 4."}
{"type":"message","role":"assistant","content":"All ","delta":true}
{"type":"message","role":"assistant","content":"done.","delta":true}
{"type":"result","status":"success","stats":{"input_tokens":30,"output_tokens":15,"cached":4}}
"""
GEMINI_FAILED = """
YOLO mode is enabled.
{"type":"result","status":"error","error":{"type":"unknown","message":"[API Error: 401]"},"stats":{}}
"""
OPENCODE = """
{"type":"step_finish","part":{"type":"step-finish","tokens":{"input":10,"output":5,"cache":{"write":1,"read":3}}}}
{"type":"text","part":{"type":"text","text":"All done."}}
{"type":"step_finish","part":{"type":"step-finish","tokens":{"input":10,"output":5,"cache":{"write":0,"read":0}}}}
"""
OPENCODE_FAILED = """
{"type":"error","error":{"name":"APIError","data":{"message":"this key is refused","statusCode":401}}}
"""
UNKNOWN = Usage(unknown=1)


@pytest.mark.parametrize(
    ("name", "printed", "said"),
    [
        ("codex", CODEX, Said("All done.", Usage(30, 15, 4), None)),
        ("codex", CODEX_FAILED, Said("", UNKNOWN, "unexpected status 401 Unauthorized: this key is refused")),
        ("gemini-cli", GEMINI, Said("All done.", Usage(30, 15, 4), None)),
        ("gemini-cli", GEMINI_FAILED, Said("", UNKNOWN, "[API Error: 401]")),
        ("opencode", OPENCODE, Said("All done.", Usage(24, 10, 3), None)),
        ("opencode", OPENCODE_FAILED, Said("", UNKNOWN, "this key is refused", 401)),
    ],
)
def test_what_an_agent_prints_is_understood(name: str, printed: str, said: Said) -> None:
    assert understood(CODING[name], printed) == said


@pytest.mark.parametrize("name", CODING)
@pytest.mark.parametrize(
    "printed",
    [
        "",
        "no JSON",
        '{"type": "error", "item": "a", "part": "b", "usage": 3, "error": []}',
        "{cut",
        "{}\n[]\n{1}",
        '{"type": "result"}',
        '{"item": null}',
    ],
)
def test_anything_else_says_nothing(name: str, printed: str) -> None:
    assert understood(CODING[name], printed) == Said("", UNKNOWN, None)


@pytest.mark.parametrize("name", CODING)
def test_settings_hold_whatever_a_model_is_named(name: str) -> None:
    row, model = CODING[name], 'a/"model"\\{x}'
    text = written(row.settings | row.server, row.file, model=model, base_url="http://a/v1", url="http://b/")
    found = tomllib.loads(text) if row.file.endswith(".toml") else json.loads(text)
    words = json.dumps(found)
    assert "http://b/" in words
    assert "{model}" not in words
    assert "{base_url}" not in words
    assert not row.settings or json.dumps(model)[1:-1] in words or name == "gemini-cli"
