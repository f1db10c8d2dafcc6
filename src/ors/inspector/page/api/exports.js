// @ts-check
// Exports an episode: as JSON, as a Python program with our client, as curl commands.

import { isObject, isRaw, pretty } from "./json.js";
import { hasKey, serverUrl } from "./server.js";

/** Exports the episode as JSON. */
export function asJson(episode) {
  return pretty({
    server: serverUrl(),
    environment: episode.environment,
    task: episode.task,
    session: episode.sid,
    prompt: episode.prompt,
    calls: episode.steps.map((step) => ({
      tool: step.tool,
      input: step.input,
      status: step.status,
      ...(step.status === "ok"
        ? { output: step.output }
        : { error: step.error, reason: step.reason }),
      seconds: step.seconds,
    })),
    total_reward: episode.total,
    reward_components: episode.components,
    finished: episode.finished,
  });
}

function python(value) {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (isRaw(value)) return value.rawJSON;
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (isObject(value))
    return `{${Object.entries(value)
      .map(([key, item]) => `${JSON.stringify(key)}: ${python(item)}`)
      .join(", ")}}`;
  return JSON.stringify(value);
}

const variable = (name) => name.toUpperCase().replace(/[^A-Z0-9]/g, "_");

/** Exports the episode as a Python program. */
export function asPython(episode) {
  const { task, secretNames } = episode;
  const given = secretNames.map((name) => `${python(name)}: os.environ[${python(variable(name))}]`);
  const secrets = given.length ? `, secrets={${given.join(", ")}}` : "";
  const opened = task.task_spec
    ? `environment.session(Task(environment.name, ${python(task.task_spec)})${secrets})`
    : `environment.session(split=${python(task.split)}, index=${task.index}${secrets})`;
  const calls = episode.steps.flatMap((step) => [
    "    try:",
    `        print(session.call_tool(${python(step.tool)}, ${python(step.input)}))`,
    "    except (ToolCallError, ToolFailed) as error:",
    `        print("no:", error)`,
  ]);
  return [
    ...(secretNames.length ? ["import os", ""] : []),
    `from ors.client import ORS${task.task_spec ? ", Task" : ""}`,
    "from ors.errors import ToolCallError, ToolFailed",
    "",
    `client = ORS(${python(serverUrl())})${hasKey() ? "  # the key comes from ORS_API_KEY" : ""}`,
    `environment = client.environment(${python(episode.environment)})`,
    `with ${opened} as session:`,
    "    print(session.get_prompt())",
    ...calls,
    "client.close()",
    "",
  ].join("\n");
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** Exports the episode as curl commands. */
export function asCurl(episode) {
  const key = hasKey() ? ` -H "X-API-Key: $ORS_API_KEY"` : "";
  const body = (value) => `-H 'Content-Type: application/json' -d ${quoted(JSON.stringify(value))}`;
  const session = `-H "X-Session-ID: $SID"${key}`;
  const at = (what) => `"$URL/${encodeURIComponent(episode.environment)}/${what}"`;
  const fields = episode.secretNames.map((name) => `"${name}":{"value":"%s"}`);
  const values = episode.secretNames.map((name) => `"$${variable(name)}"`);
  const created = { env_name: episode.environment, ...episode.task };
  const secrets = fields.length
    ? ` -H "X-Secrets: $(printf '{${fields.join(",")}}' ${values.join(" ")} | base64 | tr -d '\\n')"`
    : "";
  return [
    `URL=${quoted(serverUrl())}`,
    `SID=$(curl -s -X POST "$URL/create_session"${key} | grep -oE '[0-9a-fA-F-]{36}' | head -n 1)`,
    `curl -s "$URL/create" ${session}${secrets} ${body(created)}; echo`,
    `curl -s ${at("prompt")} ${session}; echo`,
    ...episode.steps.map(
      (step) => `curl -sN ${at("call")} ${session} ${body({ name: step.tool, input: step.input })}`,
    ),
    `curl -s -X POST "$URL/delete" ${session}; echo`,
    "",
  ].join("\n");
}
