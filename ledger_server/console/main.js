/** The console: which view is shown, what it shows of the ledger, and whether that is live. */
import { html, render, useEffect, useReducer, useState } from "./vendor/htm-3.1.1/preact.js";
import { filter, here, travelled } from "./address.js";
import { token } from "./api.js";
import { Find } from "./find.js";
import { Ledger } from "./ledger.js";
import { TokenForm } from "./parts.js";
import { count, since, time } from "./words.js";
import { Overview } from "./views/overview.js";
import { Explorer } from "./views/explorer.js";
import { UpdatePage } from "./views/update.js";
import { Clusters } from "./views/clusters.js";
import { Training } from "./views/training.js";
import { Client, Clients } from "./views/clients.js";
import { Servers } from "./views/servers.js";
import { Costs } from "./views/costs.js";
import { Issuers } from "./views/copy.js";
import { RunCosts, Runs } from "./views/runs.js";
import { Operate } from "./views/operate.js";
import { TakePart } from "./views/take_part.js";

const [SERVER, COPY, SIMULATION, NO_SIMULATION] = [["server"], ["file", "simulation"], ["simulation"], ["server", "file"]];

/** `of`: the sources of a ledger that have such a view; `isBare`: it can do without a ledger, where no run left one. */
const VIEWS = [
  { path: "runs", name: "Runs", view: Runs, of: SIMULATION, isBare: true },
  { path: "", name: "Overview", view: Overview },
  { path: "updates", name: "Updates", view: Explorer, one: UpdatePage },
  { path: "clusters", name: "Clusters", view: Clusters },
  { path: "training", name: "Training", view: Training, of: NO_SIMULATION },
  { path: "clients", name: "Clients", view: Clients, one: Client },
  { path: "servers", name: "Servers", view: Servers, of: SERVER },
  { path: "servers", name: "Servers", view: Issuers, of: COPY },
  { path: "costs", name: "Costs", view: Costs, of: NO_SIMULATION },
  { path: "costs", name: "Costs", view: RunCosts, of: SIMULATION, isBare: true },
  { path: "take-part", name: "Take part", view: TakePart, of: SERVER },
  { path: "operate", name: "Operate", view: Operate, of: SERVER },
];

/** Those that there are for what is shown. @returns {any[]} */
function views() {
  const { kind = "server", ledger: id = "" } = ledger.source ?? {};
  return VIEWS.filter((each) => (each.of ?? [kind]).includes(kind) && (id !== null || each.isBare));
}

/** Why a view is not there for what is shown. @type {Record<string, string>} */
const NOT_HERE = {
  "take-part": "This is a copy, which nobody can take part in: open the console of a server of the ledger.",
  operate: "This is a copy, without a server to operate: open the console of a server of the ledger.",
  training: "Clients of a simulation report no metrics; what was measured of them stands in Runs.",
  runs: "This is one ledger: runs are there for a folder of a simulation's results.",
};

const STILL_MS = 300; // the bar is in the address when it rests: browsers refuse more than some hundred changes of it in half a minute
const HIDDEN_MS = 20_000; // a browser holds six streams of a server at most, so hidden tabs let go of theirs
const ledger = new Ledger();

function Console() {
  const [, redraw] = useReducer((/** @type {number} */ times) => times + 1, 0);
  useEffect(() => ledger.listen(() => redraw(0)), []);
  useEffect(() => {
    const moved = () => redraw(0);
    const travel = (/** @type {HashChangeEvent} */ event) => {
      if (event.isTrusted) ledger.until = untilOf(); // else it is a filter's
      moved();
    };
    addEventListener("hashchange", travel);
    const clock = setInterval(() => {
      ledger.check();
      moved(); // "3 s ago"
    }, 5000);
    return () => {
      removeEventListener("hashchange", travel);
      clearInterval(clock);
    };
  }, []);
  useEffect(() => {
    const back = () => void (navigator.onLine && !document.hidden && ledger.state !== "live" && ledger.start());
    let leaving = 0;
    const shown = () => {
      clearTimeout(leaving);
      if (document.hidden) leaving = window.setTimeout(() => ledger.leave(), HIDDEN_MS);
      else ledger.back();
    };
    shown();
    addEventListener("online", back);
    document.addEventListener("visibilitychange", shown);
    return () => {
      clearTimeout(leaving);
      removeEventListener("online", back);
      document.removeEventListener("visibilitychange", shown);
    };
  }, []);
  const { view, one, filters } = here();
  const shown = views();
  const found = shown.find((each) => each.path === view) ?? (view === "" ? shown[0] : undefined);
  const name = (ledger.source?.kind === "simulation" ? ledger.source.name : ledger.genesis?.name) ?? "";
  useEffect(() => {
    document.title = `${found?.name ?? "Not found"} · ${name || "DAG-ACFL"}`;
  });
  return html`
    <header class="bar">
      <strong>${name || "DAG-ACFL"}</strong>
      <nav aria-label="Views">
        ${shown.map(
          (each) =>
            html`<a href=${`#/${each.path}`} aria-current=${each === found ? "page" : undefined}>${each.name}</a>`,
        )}
      </nav>
      <div class="end"><${Find} /><${State} /><${Theme} /></div>
    </header>
    ${ledger.isOldPage && html`<p class="notice" role="alert">The server has another version of this page now. <button type="button" onClick=${() => location.reload()}>Load it</button></p>`}
    <${Travel} key=${`travel ${ledger.source?.ledger}`} />
    <main key=${ledger.source?.ledger}>
      ${ledger.state === "token"
        ? html`<${AskToken} />`
        : !found
          ? html`<${NotFound} view=${view} />`
          : !ledger.genesis && !(found.isBare && ledger.source)
            ? html`<p class="quiet">${ledger.trouble ? `The server does not answer: ${ledger.trouble.message}. Trying again.` : "Asking the server …"}</p>`
            : one && found.one
              ? html`<${found.one} key=${one} ledger=${ledger} one=${one} filters=${filters} />`
              : html`<${found.view} ledger=${ledger} filters=${filters} />`}
    </main>
  `;
}

/** @param {{view: string}} properties */
function NotFound({ view }) {
  const name = VIEWS.find((each) => each.path === view)?.name;
  return html`<h1>${name ? `${name}: not here` : "There is no such view"}</h1>
    ${name && html`<p>${NOT_HERE[view] ?? "What is shown here has no ledger, or another kind of it."}</p>`}
    <p><a href="#/">${views()[0].name}</a></p>`;
}

function State() {
  const { kind, name } = ledger.source ?? {};
  const words = {
    starting: "starting",
    live: kind === "file" ? `${name}, a file` : kind === "simulation" ? "a simulation" : "live",
    away: `not connected, last heard ${since(ledger.heardAt)}; trying again`,
    token: "a token is needed",
  };
  return html`<span class=${`state ${ledger.state}`} role="status" title=${ledger.trouble?.message ?? ""}>${words[ledger.state]}</span>`;
}

function Theme() {
  const turn = () => {
    const root = document.documentElement;
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    localStorage.setItem("dag-acfl-theme", root.dataset.theme);
  };
  return html`<button type="button" onClick=${turn} aria-label="Light or dark">◐</button>`;
}

/** Where the address says that the shown ledger ends: genesis is no update. */
function untilOf() {
  const at = travelled(ledger.until && ledger.until - 1);
  return at === null ? null : at + 1;
}

/** Time travel: all views show the ledger as it was. */
function Travel() {
  const [playing, setPlaying] = useState(false);
  const [until, isHere] = [ledger.until, ledger.length > 1];
  const { view, one, filters } = here();
  const at = filters.get("at") ?? "";
  useEffect(() => {
    if (!isHere) return undefined;
    if (until !== null && until >= ledger.length) {
      ledger.until = null; // a link to all that there is
      ledger.changed();
      return undefined;
    }
    const rest = setTimeout(() => {
      const wanted = until === null ? "" : String(until - 1);
      if (until !== null) void ledger.part(Math.max(0, until - 1000), until).catch(() => {});
      if (at !== wanted || !history.state) filter({ at: wanted });
    }, STILL_MS);
    return () => clearTimeout(rest);
  }, [until, isHere, view, one, at]);
  useEffect(() => {
    if (!playing) return;
    const length = ledger.length;
    const step = Math.max(1, Math.round(length / 200));
    const clock = setInterval(() => {
      const next = (ledger.until ?? 1) + step;
      ledger.until = next >= length ? null : next;
      if (ledger.until === null) setPlaying(false);
      ledger.changed();
    }, 100);
    return () => clearInterval(clock);
  }, [playing]);
  if (!ledger.genesis || ledger.length < 2) return null;
  const go = (/** @type {number} */ end) => {
    ledger.until = end >= ledger.length ? null : end;
    ledger.changed();
  };
  const last = ledger.updates.get(ledger.end - 1);
  return html`<div class="travel">
    <button type="button" onClick=${() => { if (!playing && ledger.until === null) go(1); setPlaying(!playing); }}>${playing ? "Pause" : "Replay"}</button>
    <input type="range" min="1" max=${ledger.length} value=${ledger.end} aria-label="Show the ledger as it was after so many updates"
      onInput=${(/** @type {any} */ event) => { setPlaying(false); go(Number(event.target.value)); }} />
    <span class="quiet">${count(ledger.end - 1)} of ${count(ledger.length - 1)} updates${last ? `, ${time(last.at)}` : ""}</span>
    ${ledger.until !== null && html`<button type="button" onClick=${() => { setPlaying(false); go(ledger.length); }}>Back to now</button>`}
  </div>`;
}

function AskToken() {
  return html`<h1>This server asks for a token</h1>
    <p>${token.get() ? `${ledger.trouble?.message}. ` : ""}An operator makes one: <code>dag-acfl tokens create NAME --out NAME.token</code>. It is kept in this tab until you close it.</p>
    <${TokenForm} label="Token" onToken=${() => void ledger.start()} />`;
}

ledger.until = untilOf();
const theme = localStorage.getItem("dag-acfl-theme");
if (theme) document.documentElement.dataset.theme = theme;
render(html`<${Console} />`, /** @type {HTMLElement} */ (document.getElementById("console")));
