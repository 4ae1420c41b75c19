/** For operators with a token: members, quarantine, tokens, pruning. Everything is said in words before it is done. */
import { html, useEffect, useRef, useState } from "../vendor/htm-3.1.1/preact.js";
import { Refused, getJson, postJson, token } from "../api.js";
import { DIGITS, beginning } from "../find.js";
import { Author, Copy, Empty, Link, Table, TokenForm } from "../parts.js";
import { brief, count, number, numberOf, size, time } from "../words.js";

/** @typedef {import("../ledger.js").Ledger} Ledger */
/**
 * What is about to be done: what it is called, what will happen, the button's word, and the doing, which returns what has
 * happened.
 *
 * @typedef {{title: string, words: any[], go: string, canStop?: boolean, run: (say: (how: string) => void, isStopped: () => boolean) => Promise<any>}} Deed
 */
/** @typedef {{ledger: Ledger, members: any, begin: (deed: Deed) => void, filters: URLSearchParams}} Part */

const PATH = "/v1/operator";
const LATELY_MS = 20_000; // what other members propose appears so soon
const PARTS = { members: "Members", quarantine: "Quarantine", tokens: "Tokens", pruning: "Pruning" };
const VIEWS = { members: Members, quarantine: Quarantine, tokens: Tokens, pruning: Pruning };

/** @param {{ledger: Ledger, filters: URLSearchParams}} properties */
export function Operate({ ledger, filters }) {
  const [members, setMembers] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState(/** @type {Error | null} */ (null));
  const [deed, setDeed] = useState(/** @type {Deed | null} */ (null));
  const [times, setTimes] = useState(0);
  const lately = Math.floor(Date.now() / LATELY_MS);
  useEffect(() => {
    if (!token.get()) return setProblem(new Refused(401, "token-required", ""));
    getJson(`${PATH}/members`).then((found) => { setMembers(found); setProblem(null); }).catch(setProblem);
  }, [times, lately]);
  const again = () => setTimes(times + 1);
  if (problem instanceof Refused && [401, 403].includes(problem.status)) return html`<${AskOperator} problem=${problem} onToken=${again} />`;
  if (!members) return html`<h1>Operate</h1><p class=${problem ? "bad" : "quiet"}>${problem ? problem.message : "Asking …"}</p>`;
  const part = /** @type {keyof typeof PARTS} */ (filters.get("part") ?? "members");
  const shown = part in PARTS ? part : "members";
  const done = (/** @type {boolean} */ isDone) => {
    setDeed(null);
    if (!isDone) return; // what was typed stays
    again();
    void ledger.lately().catch(() => {});
  };
  return html`<h1>Operate</h1>
    <div class="tools">
      <nav aria-label="What to operate">${Object.entries(PARTS).map(([each, name]) => html`<a href=${`#/operate?part=${each}`} aria-current=${each === shown ? "page" : undefined}>${name}</a>`)}</nav>
      <button type="button" onClick=${() => { token.set(""); setMembers(null); again(); }}>Forget the token</button>
    </div>
    <${VIEWS[shown]} key=${`${shown} ${times}`} ledger=${ledger} members=${members} begin=${setDeed} filters=${filters} />
    ${deed && html`<${Confirmation} deed=${deed} onClose=${done} />`}`;
}

/** @param {{problem: Refused, onToken: () => void}} properties */
function AskOperator({ problem, onToken }) {
  return html`<h1>Operate</h1>
    <p>Members, quarantine, tokens and pruning are for operators of this server. ${token.get() && html`<span class="bad" role="alert">${problem.message}.</span>`}</p>
    <p>An operator's token is made on the server's machine: <code>dag-acfl tokens create NAME --scope operator --days 30</code>. It is kept in this tab until you close it, and sent to this server alone, in a header.</p>
    <${TokenForm} label="Operator's token" onToken=${onToken} />`;
}

/** What will happen, in words; done only then. @param {{deed: Deed, onClose: (isDone: boolean) => void}} properties */
function Confirmation({ deed, onClose }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const stopped = useRef(false);
  const [state, setState] = useState(/** @type {"asked" | "doing" | "done" | "failed"} */ ("asked"));
  const [said, setSaid] = useState(/** @type {any} */ (""));
  useEffect(() => {
    dialog.current?.showModal();
    return () => void (stopped.current = true);
  }, []);
  const go = async () => {
    setState("doing");
    try {
      setSaid(await deed.run(setSaid, () => stopped.current));
      setState("done");
    } catch (error) {
      setSaid(/** @type {Error} */ (error).message);
      setState("failed");
    }
  };
  const cancel = (/** @type {any} */ event) => {
    event.preventDefault();
    stopped.current = true;
    if (state !== "doing") onClose(state !== "asked");
  };
  return html`<dialog ref=${dialog} aria-labelledby="deed" onCancel=${cancel}>
    <h2 id="deed">${deed.title}</h2>
    ${deed.words.map((each) => (typeof each === "string" ? html`<p>${each}</p>` : each))}
    ${said && html`<p class=${state === "failed" ? "bad" : "good"} role="status">${said}</p>`}
    <div class="tools">
      ${(state === "asked" || state === "doing") && html`<button type="button" class="go" disabled=${state === "doing"} onClick=${() => void go()}>${deed.go}</button>`}
      ${state === "doing"
        ? deed.canStop && html`<button type="button" onClick=${() => (stopped.current = true)}>Stop</button>`
        : html`<button type="button" autofocus onClick=${() => onClose(state !== "asked")}>${state === "asked" ? "Cancel" : "Close"}</button>`}
    </div>
  </dialog>`;
}

/** How acts stand, in a sentence each. @param {{acts: any[]}} answer */
const stands = ({ acts }) =>
  acts.length
    ? acts.map((/** @type {any} */ each) => html`<span>${each.what}: ${each.state === "in effect" ? "in effect." : `signed by ${each.signed_by.length} of ${each.needed} that are needed; ${each.waits_for.length ? `${each.waits_for.join(", ")} may sign, there.` : "nobody else may sign it any more."}`} </span>`)
    : "It was so already.";

/** What a signature of this server's comes to. @param {any} members @param {number} [signed] Others that have signed. */
function votes({ needed, members }, signed = 0) {
  const missing = needed - signed - 1;
  return missing <= 0
    ? `An act needs ${needed} of ${members.length} signatures; with this server's it is in effect at once.`
    : `An act needs ${needed} of ${members.length} signatures; with this server's, ${missing} more ${missing === 1 ? "is" : "are"} missing, which other members give on their servers.`;
}

/** @param {{members: any}} properties */
const Standing = ({ members }) =>
  members.is_member
    ? html`<p>This server is a member of the ledger: what you propose or sign here is signed with its key, <code>${brief(members.public_key)}…</code>, and all members can see it.</p>`
    : html`<p class="bad">This server is no member of the ledger, so it can neither propose nor sign. ${members.members.length ? `Go to a server of a member: ${members.members.map((/** @type {any} */ each) => each.name).join(", ")}.` : "The ledger's genesis lists no members, so nobody can."}</p>`;

/** @param {Part} properties */
function Members({ ledger, members, begin }) {
  const listed = members.members;
  const waiting = members.acts.filter((/** @type {any} */ each) => each.state === "proposed");
  const decided = members.acts.filter((/** @type {any} */ each) => each.state !== "proposed");
  const add = (/** @type {any} */ event) => {
    event.preventDefault();
    const entry = new FormData(event.target).get("server")?.toString().trim() ?? "";
    begin({
      title: "Add a member",
      words: [`You propose that this server becomes a member: ${entry}.`, votes(members), "From then on members' servers exchange updates with it, it signs receipts that all believe, and its signature counts. See by another way than this page that the key is that server's."],
      go: "Propose it",
      run: async () => stands(await postJson(`${PATH}/members`, { servers: [entry] })),
    });
  };
  const remove = (/** @type {any} */ member) =>
    begin({
      title: `Remove ${member.name}`,
      words: [
        `You propose that ${member.name} is no member any more. ${votes(members)}`,
        member.key === members.public_key
          ? "It is this server itself: once that is in effect the others exchange nothing more with it, and it can sign nothing. Only another member can add it again."
          : "This server speaks to it no more from now on; the others, once the act is in effect. Its updates stay in the ledger. It can be added again.",
      ],
      go: "Propose it",
      run: async () => stands(await postJson(`${PATH}/members/removals`, { member: member.key })),
    });
  const sign = (/** @type {any} */ act) =>
    begin({
      title: "Sign a proposal",
      words: [act.what, `Signed by ${act.signed_by.join(", ") || "nobody"} so far. ${votes({ ...members, needed: act.needed }, act.signed_by.length)}`, "A signature cannot be taken back."],
      go: "Sign",
      run: async () => stands(await postJson(`${PATH}/members/signatures`, { act: act.act })),
    });
  return html`<${Standing} members=${members} />
    <h2>Members: an act needs ${members.needed} of ${listed.length} signatures</h2>
    ${listed.length
      ? html`<${Table} name="members" caption="The servers that decide together." head=${[{ name: "member" }, { name: "key" }, { name: "address" }, { name: "" }]}
          rows=${listed.map((/** @type {any} */ each) => [each.name, html`<code title=${each.key}>${brief(each.key)}</code>`, each.key === members.public_key ? "this server" : each.url || "–",
            members.is_member && html`<button type="button" aria-label=${`Remove ${each.name}`} onClick=${() => remove(each)}>Remove …</button>`])}
          plain=${listed.map((/** @type {any} */ each) => [each.name, each.key, each.url, ""])} />`
      : html`<${Empty} title="The ledger has no members."><p>They are named when it is made: <code>dag-acfl ledger init</code>.</p><//>`}
    ${members.is_member && html`<form class="tools" onSubmit=${add}><label>Another server <input name="server" size="50" required placeholder="NAME=https://address#KEY" /></label><button>Add …</button>
      <span class="quiet">as <code>dag-acfl ledger join ${location.origin}</code> says it there</span></form>`}
    ${waiting.length > 0 && html`<h2>Waiting for signatures</h2>
      <${Table} name="proposals" caption="What members have proposed." head=${[{ name: "proposal" }, { name: "what", text: true }, { name: "signed by", text: true }, { name: "needed", number: true }, { name: "" }]}
        rows=${waiting.map((/** @type {any} */ each) => [html`<code title=${each.act}>${brief(each.act)}</code>`, each.what, each.signed_by.join(", "), each.needed,
          each.is_signed_here ? "signed here" : members.is_member && html`<button type="button" aria-label=${`Sign ${brief(each.act)}`} onClick=${() => sign(each)}>Sign …</button>`])}
        plain=${waiting.map((/** @type {any} */ each) => [each.act, each.what, each.signed_by.join(" "), each.needed, ""])} />`}
    <h2>What members have decided</h2>
    ${decided.length
      ? html`<${Table} name="acts" caption=${members.acts_in_all > members.acts.length ? `The newest of ${count(members.acts_in_all)} acts.` : "Newest first; past: it can take effect no more."} size=${15} head=${[{ name: "act" }, { name: "proposed" }, { name: "state" }, { name: "what", text: true }, { name: "signed by", text: true }]}
          rows=${decided.map((/** @type {any} */ each) => [html`<code title=${each.act}>${brief(each.act)}</code>`, time(Date.parse(each.created_at)), each.state, each.reason && !each.what.includes(each.reason) ? `${each.what} (${each.reason})` : each.what, each.signed_by.join(", ")])}
          plain=${decided.map((/** @type {any} */ each) => [each.act, each.created_at, each.state, each.what, each.signed_by.join(" ")])} />`
      : html`<p class="quiet">Nothing yet. Ledger: <code>${ledger.genesis.ledger}</code></p>`}
    <p class="quiet">This server's own key is changed on its machine: <code>dag-acfl members rotate</code>.</p>`;
}

/** @param {Part} properties */
function Quarantine({ ledger, members, begin, filters }) {
  const [problem, setProblem] = useState("");
  const [choices, setChoices] = useState(/** @type {string[]} */ ([]));
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  const decisions = ledger.quarantine?.decisions ?? [];
  const open = new Set(members.acts.filter((/** @type {any} */ each) => each.state === "proposed").map((/** @type {any} */ each) => each.act));
  const see = async (/** @type {any} */ event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    setProblem("");
    setChoices([]);
    try {
      const subjects = await subjectsOf(form.get("subject")?.toString() ?? "");
      if (subjects.length !== 1) {
        setProblem(subjects.length ? "Several begin so. Which one?" : "Nothing in this ledger begins so.");
        return setChoices(subjects.length ? subjects : ledger.clients.slice(0, 20).map((each) => each.author));
      }
      const body = { subject: subjects[0], reason: form.get("reason")?.toString() ?? "" };
      if (field.current) field.current.value = body.subject;
      const would = await postJson(`${PATH}/quarantines`, { ...body, dry_run: true });
      begin({
        title: `Quarantine ${shortened(body.subject)}`,
        words: [
          would.descendants
            ? `${numberOf(would.descendants, "update")} of ${numberOf(would.authors_in_all, "client")} ${would.descendants === 1 ? "has its steps in its model" : "have its steps in their models"}. ${count(would.beyond)} of them would be offered to nobody (those with a share of more than ${number(would.max_taint, 2)}, and its own).`
            : "This server holds nothing of it: see that it is written as it should be.",
          would.authors.length > 0 && html`<${Table} name="withheld" caption="Whom it concerns; who has a clean model goes on from that, others from genesis." size=${5} head=${[{ name: "client" }, { name: "with its steps", number: true }, { name: "withheld", number: true }, { name: "goes on from" }]}
            rows=${would.authors.map((/** @type {any} */ each) => [html`<${Author} ledger=${ledger} author=${each.author} />`, count(each.descendants), count(each.beyond), would.subjects.includes(each.author) ? "nothing: it is quarantined" : each.clean ? html`<${Link} id=${each.clean} />` : "genesis"])}
            plain=${would.authors.map((/** @type {any} */ each) => [each.author, each.descendants, each.beyond, each.clean ?? ""])} />`,
          `On this server it holds at once, and everywhere when it is in effect. ${votes(members)}`,
          `Nothing is deleted, clients are led back to clean models by themselves, and it can be lifted. All can read the reason: “${body.reason}”.`,
        ],
        go: "Quarantine",
        run: async () => stands(await postJson(`${PATH}/quarantines`, { ...body, dry_run: false })),
      });
    } catch (error) {
      setProblem(/** @type {Error} */ (error).message);
    }
  };
  const lift = (/** @type {any} */ each) =>
    begin({
      title: `Lift the quarantine of ${shortened(each.subject)}`,
      words: [
        each.reach === "here" && each.signed_by.length === 1
          ? "Only this server has signed it: it holds no more at once, and nobody is asked to sign it any more. Where a member signs it before it hears of that, the lift needs the members' signatures, too."
          : `${each.reach === "here" ? "This server goes by it no more, at once; other members can still sign it, until the lift is in effect." : "What it withholds is offered again when the lift is in effect, on all servers at once."} ${votes(members)}`,
        `It was quarantined because of: “${each.reason}”.`,
      ],
      go: "Lift it",
      run: async () => stands(await postJson(`${PATH}/quarantines/lifts`, { act: each.act })),
    });
  return html`<${Standing} members=${members} />
    ${members.is_member && html`<section><h2>Quarantine a client or an update</h2>
      <form class="tools" onSubmit=${see}>
        <label>Client or update <input ref=${field} name="subject" list="clients" size="40" required defaultValue=${filters.get("subject") ?? ""} placeholder="key:…, hash:… or an update's id, or how it begins" /></label>
        <datalist id="clients">${ledger.clients.slice(0, 200).map((each) => html`<option value=${each.author}></option>`)}</datalist>
        <label>Why <input name="reason" size="30" required maxlength="500" placeholder="for all to read" /></label>
        <button>See what it withholds …</button>
      </form>
      ${problem && html`<p class="bad" role="alert">${problem}</p>`}
      ${choices.length > 0 && html`<div class="tools" role="group" aria-label="What is known">${choices.map((each) => html`<button type="button" title=${each} onClick=${() => field.current && (field.current.value = each)}>${shortened(each)}</button>`)}</div>`}</section>`}
    <h2>Decided</h2>
    ${decisions.length
      ? html`<${Table} name="quarantine" caption=${`Of the ledger's updates, ${count(ledger.quarantine.withheld)} are offered to nobody.`} head=${[{ name: "act" }, { name: "what" }, { name: "whose" }, { name: "holds" }, { name: "why", text: true }, { name: "" }]}
          rows=${decisions.map((/** @type {any} */ each) => [html`<code title=${each.act}>${brief(each.act)}</code>`, each.kind === "erase" ? "erased" : "quarantined", html`<code title=${each.subject}>${shortened(each.subject)}</code>`, each.reach === "lifted" && open.has(each.act) ? "not here; others may still sign it" : REACH[each.reach], each.reason,
            members.is_member && each.kind === "quarantine" && ["everywhere", "here"].includes(each.reach) && html`<button type="button" aria-label=${`Lift ${brief(each.act)}`} onClick=${() => lift(each)}>Lift …</button>`])}
          plain=${decisions.map((/** @type {any} */ each) => [each.act, each.kind, each.subject, each.reach, each.reason, ""])} />`
      : html`<${Empty} title="Nothing is quarantined or erased."><p>Alarms that stand are on the page <a href="#/clients">Clients</a>.</p><//>`}
    <p class="quiet">Erasing a client's models cannot be undone, so it is done on the server's machine: <code>dag-acfl trust erase</code>.</p>`;
}

/** What is meant by what somebody has written: all in the ledger that begin so; one in full also where it is not there yet. @param {string} text */
async function subjectsOf(text) {
  const written = text.trim().toLowerCase().replace(/^update:/, "");
  if (!DIGITS.test(written)) throw new Error("Ids are digits and the letters a to f; a client's has key: or hash: before them.");
  const { updates, authors } = await beginning(written);
  const found = [...authors, ...updates.map(({ transaction }) => `update:${transaction}`)];
  if (found.length || !/[0-9a-f]{64}$/.test(written)) return found;
  return [written.includes(":") ? written : `update:${written}`];
}

/** @type {Record<string, string>} */
const REACH = { everywhere: "everywhere", here: "on this server; too few have signed yet", proposed: "nowhere yet", lifted: "no more: lifted" };

/** @param {string} subject */
const shortened = (subject) => (subject.length > 30 ? `${subject.slice(0, subject.indexOf(":") + 9)}…` : subject);

/** @type {Record<string, string>} */
const MAY = { client: "take part", metrics: "read metrics", operator: "operate" };

/** @param {Part} properties */
function Tokens({ begin }) {
  const [items, setItems] = useState(/** @type {any[] | null} */ (null));
  const [problem, setProblem] = useState("");
  useEffect(() => void getJson(`${PATH}/tokens`).then((found) => setItems(found.items)).catch((error) => setProblem(error.message)), []);
  const make = (/** @type {any} */ event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const name = form.get("name")?.toString().trim() ?? "";
    const days = Number(form.get("days")) || null;
    const author = form.get("author")?.toString().trim() ?? "";
    begin({
      title: `Make a token for ${name}`,
      words: [`Whoever holds it can take part in the ledger at this server${author ? `, and publish as ${author} alone` : ", and publish as anybody"}${days ? `, for ${numberOf(days, "day")}` : ", without end, until it is revoked"}.`, "It is shown once, here: give it to its holder by a way that others cannot read. The server keeps only a digest of it."],
      go: "Make it",
      run: async () => {
        const { secret } = await postJson(`${PATH}/tokens`, { name, days, authors: author ? [author] : [] });
        return html`Shown this once: <code class="secret">${secret}</code> <${Copy} text=${secret} />`;
      },
    });
  };
  const revoke = (/** @type {any} */ each) =>
    begin({
      title: `Revoke the token of ${each.name}`,
      words: [each.is_yours ? "This is the token that you use now: this page can do nothing more with it." : `Whoever holds it is refused from the next request on${each.scope === "client" ? ", and publishes here no more" : ""}.`, "It cannot be taken back; a new token can be made under the same name. Other servers that were given this token go on taking it: revoke it there, too."],
      go: "Revoke it",
      run: async () => `The token ${(await postJson(`${PATH}/tokens/revocations`, { token: each.id })).id} is revoked.`,
    });
  if (!items) return html`<p class=${problem ? "bad" : "quiet"}>${problem || "Asking …"}</p>`;
  return html`<h2>Tokens of this server</h2>
    <${Table} name="tokens" caption="Whom each is for. Secrets are nowhere: the server has digests alone." head=${[{ name: "name" }, { name: "id" }, { name: "may" }, { name: "made" }, { name: "until" }, { name: "publishes as", text: true }, { name: "" }]}
      rows=${items.map((each) => [html`${each.name}${each.is_yours && html` <span class="good">(yours)</span>`}`, html`<code>${each.id}</code>`, MAY[each.scope], time(Date.parse(each.created_at)).slice(0, 10),
        !each.is_valid ? html`<span class="bad">expired</span>` : each.expires_at ? time(Date.parse(each.expires_at)).slice(0, 10) : "no end", each.authors.map(shortened).join(", ") || "anybody",
        html`<button type="button" aria-label=${`Revoke ${each.name}`} onClick=${() => revoke(each)}>Revoke …</button>`])}
      plain=${items.map((each) => [each.name, each.id, each.scope, each.created_at, each.expires_at ?? "", each.authors.join(" "), ""])} />
    <h2>Make a client's token</h2>
    <form class="tools" onSubmit=${make}>
      <label>For whom <input name="name" size="16" required maxlength="64" placeholder="site-3" /></label>
      <label>Days <input name="days" type="number" min="1" max="36500" defaultValue="90" size="6" /></label>
      <label>Publishes as <input name="author" size="30" placeholder="anybody, or key:…" pattern="(key|hash):[0-9a-f]{64}" /></label>
      <button>Make it …</button>
    </form>
    <p class="quiet">An operator's token is made on the server's machine alone (<code>dag-acfl tokens create NAME --scope operator</code>): so one that is stolen makes no other. Tokens are a file of each machine's data folder: where several serve the ledger, copy it, or make and revoke them on each.</p>`;
}

/** @param {Part} properties */
function Pruning({ begin }) {
  const [said, setSaid] = useState("");
  const [isBad, setBad] = useState(false);
  const look = async (/** @type {any} */ event) => {
    event.preventDefault();
    const keep_days = Number(new FormData(event.target).get("days"));
    setBad(false);
    try {
      const would = await pruned({ keep_days, dry_run: true }, setSaid, () => false);
      setSaid(would.models ? "" : `Nothing would go: all ${count(would.held)} models stay by the rule.`);
      if (!would.models) return;
      begin({
        title: `Prune ${numberOf(would.models, "model")}`,
        words: [
          `${numberOf(would.models, "model")}, ${size(would.nbytes)}, will go from this ledger's store; ${count(would.held)} will stay.`,
          `What stays: genesis, each client's newest within the ledger's freshness, whatever was received in the last ${numberOf(keep_days, "day")}, and all headers, signatures and evidence: the ledger's proof still holds.`,
          "What goes is gone for good here: take a backup first (dag-acfl ledger backup), or an export (dag-acfl ledger export). A quarantine leads clients back to models that are still here: prune no sooner than you would notice a bad client.",
          "The server goes on serving meanwhile; other servers decide for themselves.",
        ],
        go: "Prune",
        canStop: true,
        run: async (say, isStopped) => {
          const went = await pruned({ keep_days, dry_run: false }, say, isStopped);
          return `${numberOf(went.models, "model")}, ${size(went.nbytes)}, ${went.models === 1 ? "is" : "are"} gone; the journal takes ${size(went.storage_bytes)} now.${went.is_whole ? "" : " It was stopped; prune again to go on."}`;
        },
      });
    } catch (error) {
      setBad(true);
      setSaid(/** @type {Error} */ (error).message);
    }
  };
  return html`<h2>Prune old models</h2>
    <p>Models that nobody can be offered any more take most of a ledger's space. First see what would go.</p>
    <form class="tools" onSubmit=${look}>
      <label>Keep what was received in the last <input name="days" type="number" min="0" max="36500" step="any" defaultValue="30" required size="6" /> days of ledger time</label>
      <button>See what would go …</button>
    </form>
    <p class=${isBad ? "bad" : "quiet"} role=${isBad ? "alert" : "status"}>${said}</p>
    <p class="quiet">By itself and regularly: the setting <code>prune.keep_days</code>. A database file keeps its size, with room for new models; <code>dag-acfl ledger prune --compact</code> on the server's machine gives it back to the disk.</p>`;
}

/**
 * Part by part, each some seconds: so it can be stopped, and no request is long.
 *
 * @param {{keep_days: number, dry_run: boolean}} body @param {(how: string) => void} say @param {() => boolean} isStopped
 */
async function pruned(body, say, isStopped) {
  const sum = { models: 0, nbytes: 0, held: 0, storage_bytes: 0, is_whole: false };
  for (let after = null; !sum.is_whole && !isStopped(); ) {
    const part = await postJson(`${PATH}/pruning`, { ...body, after });
    for (const name of /** @type {const} */ (["models", "nbytes", "held"])) sum[name] += part[name];
    [sum.is_whole, sum.storage_bytes, after] = [part.is_whole, part.storage_bytes, part.after];
    say(`${numberOf(sum.models + sum.held, "model")} looked at, ${count(sum.models)} ${body.dry_run ? "would go" : "gone"} …`);
  }
  return sum;
}
