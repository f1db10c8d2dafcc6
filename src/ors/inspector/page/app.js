// @ts-check
// The page: views by the hash of the address, the state of the server, and its API key.

import { forget } from "./api/catalogue.js";
import * as compare from "./views/compare.js";
import { actions, el, failure, fill, h, labelled } from "./widgets/dom.js";
import * as environments from "./views/environments.js";
import * as live from "./views/live.js";
import * as play from "./views/play.js";
import * as runs from "./views/runs.js";
import {
  about,
  Away,
  keepChecking,
  loadAbout,
  Refusal,
  serverUrl,
  setKey,
  state,
  whyAway,
} from "./api/server.js";
import * as tasks from "./views/tasks.js";
import * as watch from "./views/session.js";
import * as wire from "./views/wire.js";

const VIEWS = { environments, tasks, play, live, session: watch, wire, runs, compare };
const LINKS = [
  ["environments", "Environments"],
  ["tasks", "Tasks"],
  ["play", "Play"],
  ["live", "Live"],
  ["runs", "Runs"],
  ["wire", "Wire"],
];
const WITHIN = { session: "live", compare: "runs" };
const main = document.getElementById("main");
const notice = document.getElementById("notice");
let leave = null;
let turn = 0;
let failed = false;

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // typed by hand
  }
}

/** Which links there are: a folder of runs has no environments, and most servers have no runs. */
const links = () =>
  LINKS.filter(([view]) => (view === "runs" ? about.runs : about.serves !== false));

function route() {
  const [path, asked = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [name, ...rest] = path.split("/").map(decoded);
  const home = about.serves === false ? "runs" : "environments";
  return [
    VIEWS[name] ? name : home,
    rest.filter((part) => part !== ""),
    new URLSearchParams(asked),
  ];
}

async function render() {
  const mine = ++turn;
  leave?.();
  leave = null;
  failed = false;
  const [name, parts, asked] = route();
  const current = WITHIN[name] ?? name;
  fill(
    document.getElementById("nav"),
    links().map(([view, label]) =>
      h("a", { href: `#/${view}`, "aria-current": view === current ? "page" : null }, label),
    ),
  );
  document
    .querySelector("#nav [aria-current]")
    ?.scrollIntoView({ block: "nearest", inline: "nearest" }); // on a phone
  document.title = `${[name[0].toUpperCase() + name.slice(1), ...parts].join(" · ")} – ORS inspector`;
  const view = h("div", { class: `view ${name}` });
  fill(main, view);
  window.scrollTo(0, 0);
  try {
    const stop = await VIEWS[name].show(view, parts, asked);
    if (mine === turn) leave = stop ?? null;
    else stop?.();
  } catch (error) {
    if (mine !== turn) return;
    failed = true;
    if (error instanceof Refusal && error.status === 401) return;
    for (const waiting of view.querySelectorAll("p.muted")) waiting.remove();
    view.append(failure(error));
  }
}

function tellServer() {
  fill(
    document.getElementById("server"),
    h("span", { class: `dot ${whyAway() ? "away" : "there"}`, "aria-hidden": "true" }),
    el("span.address", serverUrl().replace(/^https?:\/\//, "")),
    about.version ? el("span.muted", ` ${about.version}`) : null,
  );
}

function askForKey() {
  if (main.querySelector(".key")) return;
  leave?.();
  leave = null;
  const key = h("input", { type: "password", autocomplete: "current-password" });
  const form = el(
    "form.card.key",
    el("h1", "This server needs an API key"),
    labelled("API key", key),
    actions(h("button.primary", { type: "submit" }, "Unlock")),
    el("p.hint", "The key is kept until this tab is closed."),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    setKey(key.value);
    fill(main);
    forget();
    start();
  });
  turn += 1;
  fill(main, form);
  key.focus();
}

async function start() {
  try {
    await loadAbout();
  } catch (error) {
    if (error instanceof Away) failed = true;
    else if (error.status !== 401) fill(main, failure(error));
    return;
  }
  tellServer();
  await render();
}

state.addEventListener("away", () => {
  fill(
    notice,
    el("p.away", el("b", "The server cannot be reached. "), `${whyAway()} Retrying every second.`),
  );
  tellServer();
});
state.addEventListener("back", async () => {
  fill(notice, el("p.back", "The server is back."));
  setTimeout(() => notice.querySelector(".back")?.remove(), 4000);
  forget();
  if (!about.version || failed) await start();
  tellServer();
});
state.addEventListener("locked", askForKey);
window.addEventListener("hashchange", async () => {
  await render();
  if (!main.contains(document.activeElement)) main.focus({ preventScroll: true });
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash of the address is the view
  main.focus();
});
await start();
keepChecking();
