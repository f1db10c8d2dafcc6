"""The coding agents: how each is configured, started and understood. A new one is one row here."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ors._json import loads
from ors.providers.messages import Usage
from ors.providers.parts import at

JSON = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """What a program tells when it ends: its last message, its tokens, and why its model failed."""

    text: str
    usage: Usage
    error: str | None
    status: int | None = None
    """The HTTP status of that error, if it is told apart from its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingProgram:
    """One coding agent. Its settings ask no questions.

    `{url}` stands for the episode, `{model}` and `{base_url}` for the model, `{home}` for the program's home.
    The variables for the key and the URL of its provider are always set.
    """

    command: str
    package: str
    """Its name on npm."""
    provider: str
    """Whose API its model speaks, as in `--model PROVIDER:NAME`."""
    arguments: Sequence[str]
    said: Callable[[Sequence[JSON]], Said]
    """Reads the JSON objects that it prints, one in a line."""
    file: str
    """Its settings, in its home."""
    server: JSON
    """The settings that name our MCP server."""
    settings: JSON = field(default_factory=dict)
    """The other settings."""
    alone: tuple[Sequence[str], JSON]
    """Further arguments and settings that leave it no tools but ours."""
    inside: tuple[Sequence[str], JSON]
    """Those that let it use its own tools too, in the episode's sandbox."""
    variables: Mapping[str, str] = field(default_factory=dict)


def written(settings: JSON, file: str, **words: str) -> str:
    """Settings as the text of a file, TOML if its name says so, otherwise JSON."""
    text = json.dumps(settings, indent=2) + "\n"
    if file.endswith(".toml"):
        text = _tables(settings)
    for word, value in words.items():
        text = text.replace(f"{{{word}}}", json.dumps(value)[1:-1])
    return text


def _tables(settings: JSON, name: str = "") -> str:
    """A table of TOML, and those in it: with a head, so that it can follow what is in a file already."""
    values = [f"{key} = {json.dumps(value)}\n" for key, value in settings.items() if type(value) is not dict]
    inner = [_tables(value, f"{name}.{key}") for key, value in settings.items() if type(value) is dict]
    return "".join([f"[{name[1:]}]\n" if name and values else "", *values, *inner])


def understood(row: CodingProgram, printed: str) -> Said:
    """What a program said on its standard output: nothing, if it is of a version that prints otherwise."""
    found: list[JSON] = []
    for line in printed.splitlines():
        if line.startswith("{"):
            with suppress(ValueError):
                found.append(loads(line))
    try:
        return row.said(found)
    except (AttributeError, TypeError):
        return Said("", Usage(unknown=1), None)


def _last(events: Sequence[JSON], **wanted: str) -> JSON:
    return next((each for each in reversed(events) if wanted.items() <= each.items()), {})


def _usage(counts: Any, input: Sequence[str], cached: str, output: str = "output_tokens") -> Usage:
    """The tokens of a program's own counts; those of all keys of `input` are added up."""
    known = {key: at(counts, *key.split(".")) for key in (*input, cached, output)}
    number = {key: value if type(value) is int else 0 for key, value in known.items()}
    found = Usage(sum(number[key] for key in input), number[output], number[cached])
    return found if found != Usage() else Usage(unknown=1)


def _claude(events: Sequence[JSON]) -> Said:
    end, cached = _last(events, type="result"), "cache_read_input_tokens"
    text = str(end.get("result") or "")
    usage = _usage(end.get("usage"), ["input_tokens", "cache_creation_input_tokens", cached], cached)
    return Said(text, usage, text if end.get("is_error") else None, end.get("api_error_status"))


def _codex(events: Sequence[JSON]) -> Said:
    text = _last([each.get("item") or {} for each in events], type="agent_message").get("text")
    counts = _last(events, type="turn.completed").get("usage")
    error = at(_last(events, type="turn.failed"), "error", "message")
    return Said(str(text or ""), _usage(counts, ["input_tokens"], "cached_input_tokens"), error)


def _gemini(events: Sequence[JSON]) -> Said:
    results = [number for number, each in enumerate(events) if each.get("type") == "tool_result"]
    since, end = events[results[-1] if results else 0 :], _last(events, type="result")
    text = "".join(str(each.get("content")) for each in since if each.get("role") == "assistant")
    return Said(text, _usage(end.get("stats"), ["input_tokens"], "cached"), at(end, "error", "message"))


def _opencode(events: Sequence[JSON]) -> Said:
    parts = [each.get("part") or {} for each in events]
    counts = [part.get("tokens") for part in parts if part.get("type") == "step-finish"] or [None]
    each = (_usage(one, ["input", "cache.read", "cache.write"], "cache.read", "output") for one in counts)
    error = _last(events, type="error").get("error")
    why = at(error, "data", "message") or at(error, "name")
    text = str(_last(parts, type="text").get("text") or "")
    return Said(text, sum(each, Usage()), why, at(error, "data", "statusCode"))


# fmt: off
CODING: Mapping[str, CodingProgram] = {
    "claude-code": CodingProgram(
        command="claude", package="@anthropic-ai/claude-code", provider="anthropic", said=_claude,
        arguments=(
            "-p", "--model", "{model}", "--mcp-config", "{home}/.mcp.json", "--strict-mcp-config",
            "--output-format", "json",
        ),
        alone=(("--allowedTools", "mcp__ors", "--tools", ""), {}),
        inside=((
            "--allowedTools", "mcp__ors,Bash,Edit,Glob,Grep,Read,Write",
            "--tools", "Bash,Edit,Glob,Grep,Read,Write",
        ), {}),
        file=".mcp.json",
        server={"mcpServers": {"ors": {"type": "http", "url": "{url}"}}},
        variables={
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "4",  # 10 take minutes, also for a key that is refused
            "MCP_CONNECTION_NONBLOCKING": "0",  # else it may begin before it has our tools
        },
    ),
    "codex": CodingProgram(
        command="codex", package="@openai/codex", provider="openai-responses", said=_codex,
        arguments=("exec", "--skip-git-repo-check", "--json", "-"),
        file=".codex/config.toml",
        # Without `required`, it may begin before it has our tools.
        server={"mcp_servers": {"ors": {
            "url": "{url}", "required": True, "default_tools_approval_mode": "approve",
        }}},
        settings={
            "model": "{model}", "model_provider": "ors",
            "web_search": "disabled",
            "model_providers": {"ors": {
                "name": "ors", "base_url": "{base_url}", "env_key": "OPENAI_API_KEY", "wire_api": "responses",
            }},
        },
        alone=((), {"sandbox_mode": "read-only", "features": dict.fromkeys((
            "shell_tool", "unified_exec", "view_image", "goals", "multi_agent", "apps", "plugins",
        ), False)}),
        inside=((), {"sandbox_mode": "danger-full-access", "approval_policy": "never"}),
    ),
    "gemini-cli": CodingProgram(
        command="gemini", package="@google/gemini-cli", provider="google", said=_gemini,
        arguments=("-m", "{model}", "--approval-mode", "yolo", "--output-format", "stream-json"),
        file=".gemini/settings.json",
        server={"mcpServers": {"ors": {"httpUrl": "{url}", "trust": True}}},
        settings={
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": False}, "general": {"disableAutoUpdate": True},
        },
        alone=((), {"tools": {"core": ["mcp_ors_*"]}}),
        inside=((), {"tools": {"core": [
            "mcp_ors_*", "glob", "grep_search", "list_directory", "read_file", "read_many_files", "replace",
            "run_shell_command", "write_file",
        ]}}),
        variables={"GEMINI_CLI_TRUST_WORKSPACE": "true"},
    ),
    "opencode": CodingProgram(
        command="opencode", package="opencode-ai", provider="openai", said=_opencode,
        arguments=("run", "--format", "json"),
        file=".config/opencode/opencode.json",
        server={"mcp": {"ors": {"type": "remote", "url": "{url}", "enabled": True, "oauth": False}}},
        settings={
            "model": "ors/{model}", "small_model": "ors/{model}", "autoupdate": False, "share": "disabled",
            "provider": {"ors": {
                "npm": "@ai-sdk/openai-compatible", "models": {"{model}": {"tool_call": True}},
                "options": {"baseURL": "{base_url}", "apiKey": "{env:OPENAI_API_KEY}"},
            }},
        },
        alone=((), {"permission": {"*": "deny", "ors_*": "allow"}}),
        inside=((), {"permission": {"*": "allow", "webfetch": "deny", "websearch": "deny"}}),
        variables={"OPENCODE_DISABLE_MODELS_FETCH": "1"},
    ),
}
"""Agents that can be started, by their names."""

SNIPPETS: Mapping[str, tuple[str, JSON]] = {
    **{name.removesuffix("-cli"): (f"~/{row.file}", row.server) for name, row in CODING.items()},
    "claude-code": (".mcp.json", CODING["claude-code"].server),
    "cursor": (".cursor/mcp.json", {"mcpServers": {"ors": {"url": "{url}"}}}),
    "other": (".mcp.json", CODING["claude-code"].server),  # as most take it
}
"""Where a user's agent looks for MCP servers, and what stands there."""
