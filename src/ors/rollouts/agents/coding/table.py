"""The coding agents: how each is configured, started and understood. A new one is one row here."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ors._json import loads
from ors.providers.messages import Usage
from ors.providers.parts import at

JSON = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """What a program tells of itself when it ends."""

    text: str = ""
    """Its last message."""
    usage: Usage = Usage(unknown=1)  # noqa: RUF009 - frozen
    error: str | None = None
    """Why its model failed."""
    status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingProgram:
    """One coding agent. Its settings allow no tools but ours, and ask no questions."""

    command: str
    package: str
    """Its name on npm."""
    provider: str
    """Whose API its model speaks, as in `--model PROVIDER:NAME`."""
    key: str
    """The variable with the API key."""
    arguments: Sequence[str]
    """`{model}` stands for the model, `{home}` for the agent's home."""
    file: str
    """Its settings, in its home."""
    server: Callable[[str], JSON]
    """The settings that name an MCP server at a URL."""
    settings: Callable[[str, str], JSON] = lambda model, base_url: {}
    """The other settings, for a model and the URL of its provider."""
    variables: Callable[[str], Mapping[str, str]] = lambda base_url: {}
    said: Callable[[Sequence[JSON]], Said]
    """Reads the JSON objects that it prints, one in a line."""


def written(settings: JSON, file: str) -> str:
    """Settings as the text of a file: TOML if its name says so, otherwise JSON."""
    if file.endswith(".toml"):
        return "".join(f"{key} = {json.dumps(value)}\n" for key, value in _dotted(settings))
    return json.dumps(settings, indent=2) + "\n"


def _dotted(settings: JSON, prefix: str = "") -> list[tuple[str, Any]]:
    found = []
    for key, value in settings.items():
        inner = _dotted(value, f"{prefix}{key}.") if isinstance(value, dict) else [(prefix + key, value)]
        found += inner
    return found


def understood(row: CodingProgram, printed: str) -> Said:
    """What a program said on its standard output. Some tell the status of a model's error in words only."""
    found = []
    for line in printed.splitlines():
        if line.startswith("{"):
            try:
                found.append(loads(line))
            except ValueError:
                continue
    said = row.said([each for each in found if isinstance(each, dict)])
    words = re.search(r"\b[45]\d\d\b", said.error or "")
    if said.error is None or said.status is not None or words is None:
        return said
    return Said(said.text, said.usage, said.error, int(words[0]))


def _last(events: Sequence[JSON], **wanted: str) -> JSON:
    return next((each for each in reversed(events) if wanted.items() <= each.items()), {})


def _usage(counts: Any, input: Sequence[str], cached: str, output: str = "output_tokens") -> Usage:
    """The tokens of a program's own counts; those of all keys of `input` are added up."""

    def total(*keys: str) -> int:
        found = (at(counts, *key.split(".")) for key in keys)
        return sum(each for each in found if type(each) is int)

    if not total(*input, output):
        return Usage(unknown=1)
    return Usage(total(*input), total(output), total(cached))


def _claude_said(events: Sequence[JSON]) -> Said:
    end, cached = _last(events, type="result"), "cache_read_input_tokens"
    text = str(end.get("result") or "")
    usage = _usage(end.get("usage"), ["input_tokens", "cache_creation_input_tokens", cached], cached)
    return Said(text, usage, text if end.get("is_error") else None, end.get("api_error_status"))


def _codex_said(events: Sequence[JSON]) -> Said:
    items = [each["item"] for each in events if isinstance(each.get("item"), dict)]
    counts = _last(events, type="turn.completed").get("usage")
    text = str(_last(items, type="agent_message").get("text", ""))
    error = at(_last(events, type="turn.failed"), "error", "message")
    return Said(text, _usage(counts, ["input_tokens"], "cached_input_tokens"), error)


def _gemini_said(events: Sequence[JSON]) -> Said:
    results = [number for number, each in enumerate(events) if each.get("type") == "tool_result"]
    since = events[results[-1] :] if results else events
    text = "".join(str(each.get("content", "")) for each in since if each.get("role") == "assistant")
    end = _last(events, type="result")
    return Said(text, _usage(end.get("stats"), ["input_tokens"], "cached"), at(end, "error", "message"))


def _opencode_said(events: Sequence[JSON]) -> Said:
    parts = [each["part"] for each in events if isinstance(each.get("part"), dict)]
    counts = [part.get("tokens") for part in parts if part.get("type") == "step-finish"]
    each = (_usage(one, ["input", "cache.read", "cache.write"], "cache.read", "output") for one in counts)
    usage = sum(each, Usage()) if counts else Usage(unknown=1)
    error = _last(events, type="error").get("error")
    why = at(error, "data", "message") or at(error, "name")
    text = str(_last(parts, type="text").get("text", ""))
    return Said(text, usage, why, at(error, "data", "statusCode"))


_CLAUDE = (
    "-p", "--model", "{model}", "--mcp-config", "{home}/.mcp.json", "--strict-mcp-config",
    "--allowedTools", "mcp__ors", "--tools", "", "--output-format", "json",
)  # fmt: skip

CODING: Mapping[str, CodingProgram] = {
    "claude-code": CodingProgram(
        command="claude",
        package="@anthropic-ai/claude-code",
        provider="anthropic",
        key="ANTHROPIC_API_KEY",
        arguments=_CLAUDE,
        file=".mcp.json",
        server=lambda url: {"mcpServers": {"ors": {"type": "http", "url": url}}},
        variables=lambda base_url: {
            "ANTHROPIC_BASE_URL": base_url,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "4",  # 10 take minutes, also for a key that is refused
            "MCP_CONNECTION_NONBLOCKING": "0",  # else it may begin before it has our tools
        },
        said=_claude_said,
    ),
    "codex": CodingProgram(
        command="codex",
        package="@openai/codex",
        provider="openai-responses",
        key="OPENAI_API_KEY",
        arguments=("exec", "--skip-git-repo-check", "--json", "-"),
        file=".codex/config.toml",
        # Without `required`, it begins before it has the tools of a server that is not there in a second.
        server=lambda url: {
            "mcp_servers": {"ors": {"url": url, "required": True, "default_tools_approval_mode": "approve"}}
        },
        settings=lambda model, base_url: {
            "model": model,
            "model_provider": "ors",
            "model_providers": {
                "ors": {
                    "name": "ors",
                    "base_url": base_url,
                    "env_key": "OPENAI_API_KEY",
                    "wire_api": "responses",
                }
            },
            "sandbox_mode": "read-only",
            "web_search": "disabled",
            "features": dict.fromkeys(
                ("shell_tool", "unified_exec", "view_image", "goals", "multi_agent", "apps", "plugins"), False
            ),
        },
        said=_codex_said,
    ),
    "gemini-cli": CodingProgram(
        command="gemini",
        package="@google/gemini-cli",
        provider="google",
        key="GEMINI_API_KEY",
        arguments=("-m", "{model}", "--approval-mode", "yolo", "--output-format", "stream-json"),
        file=".gemini/settings.json",
        server=lambda url: {"mcpServers": {"ors": {"httpUrl": url, "trust": True}}},
        settings=lambda model, base_url: {
            "tools": {"core": ["mcp_ors_*"]},
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"disableAutoUpdate": True},
        },
        variables=lambda base_url: {
            "GOOGLE_GEMINI_BASE_URL": base_url,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        },
        said=_gemini_said,
    ),
    "opencode": CodingProgram(
        command="opencode",
        package="opencode-ai",
        provider="openai",
        key="OPENAI_API_KEY",
        arguments=("run", "--format", "json"),
        file=".config/opencode/opencode.json",
        server=lambda url: {"mcp": {"ors": {"type": "remote", "url": url, "enabled": True, "oauth": False}}},
        settings=lambda model, base_url: {
            "provider": {
                "ors": {
                    "npm": "@ai-sdk/openai-compatible",
                    "options": {"baseURL": base_url, "apiKey": "{env:OPENAI_API_KEY}"},
                    "models": {model: {"tool_call": True}},
                }
            },
            "model": f"ors/{model}",
            "small_model": f"ors/{model}",
            "permission": {"*": "deny", "ors_*": "allow"},
            "autoupdate": False,
            "share": "disabled",
        },
        variables=lambda base_url: {"OPENCODE_DISABLE_MODELS_FETCH": "1"},
        said=_opencode_said,
    ),
}
"""Agents that can be started, by their names."""


def snippets() -> dict[str, tuple[str, Callable[[str], JSON]]]:
    """Where a user's agent looks for MCP servers, and what stands there for one at a URL."""
    found = {name.removesuffix("-cli"): (f"~/{row.file}", row.server) for name, row in CODING.items()}
    found["claude-code"] = (".mcp.json", CODING["claude-code"].server)
    return found | {"cursor": (".cursor/mcp.json", lambda url: {"mcpServers": {"ors": {"url": url}}})}
