/** What several views show: tables, authors, charts, and what stands where there is nothing yet. */
import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/htm-3.1.1/preact.js";
import { filter } from "./address.js";
import { token } from "./api.js";
import { svgOf } from "./figure.js";
import { authorName, brief, colour, count, number, rfc3339, since } from "./words.js";

/** @typedef {import("./ledger.js").Ledger} Ledger */

/** @param {{ledger: Ledger, author: string}} properties */
export const Author = ({ ledger, author }) => {
  const cluster = ledger.cluster(author);
  return html`<a href=${`#/clients/${encodeURIComponent(author)}`} class="mono" title=${author}
    ><${Chip} place=${cluster} />${authorName(author)}</a
  >`;
};

/** @param {{id: string}} properties */
export const Link = ({ id }) => html`<a href=${`#/updates/${id}`} class="mono" title=${id}>${brief(id)}</a>`;

/** @param {{place: number}} properties */
export const Chip = ({ place }) => {
  const dot = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => { // before it is painted: in a replay rows change ten times a second
    if (dot.current) dot.current.style.background = colour(place);
  });
  return html`<i class="chip" ref=${dot}></i>`;
};

/** @param {{text: string, children?: any}} properties */
export const Copy = ({ text, children }) => {
  const [done, setDone] = useState(false);
  const copy = async (/** @type {any} */ event) => {
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else {
      // Over plain HTTP there is no clipboard: the text is selected for Ctrl-C.
      const field = document.createElement("textarea");
      field.value = text;
      event.currentTarget.after(field); // beside it: what lies behind an open dialog cannot be selected
      field.select();
      document.execCommand("copy");
      field.remove();
    }
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<button type="button" onClick=${copy}>${done ? "Copied" : (children ?? "Copy")}</button>`;
};

/** @param {{label: string, onToken: () => void}} properties */
export function TokenForm({ label, onToken }) {
  const take = (/** @type {any} */ event) => {
    event.preventDefault();
    token.set(new FormData(event.target).get("token")?.toString() ?? "");
    onToken();
  };
  return html`<form class="tools" onSubmit=${take}><label>${label} <input name="token" type="password" autocomplete="off" size="50" required /></label><button>Go on</button></form>`;
}

/** @param {{title: string, children?: any}} properties */
export const Empty = ({ title, children }) => html`<div class="empty"><strong>${title}</strong>${children}</div>`;

/** @param {string} name @param {BlobPart} data @param {string} type */
export function save(name, data, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([data], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/**
 * A table that shows a page at a time, sorted by a column where a person asks for it, and can be saved.
 *
 * @param {{name: string, caption: string, head: {name: string, number?: boolean, text?: boolean}[], rows: any[][], plain: (string | number)[][],
 *          marked?: (row: number) => boolean, size?: number, more?: string[]}} properties `more`: columns of the CSV alone.
 */
export function Table({ name, caption, head, rows, plain, marked, size = 50, more = [] }) {
  const [page, setPage] = useState(0);
  const pages = Math.max(1, Math.ceil(rows.length / size));
  const at = Math.min(page, pages - 1);
  const [sort, setSort] = useState(/** @type {{by: number, isDown: boolean} | null} */ (null));
  const order = rows.map((_, row) => row);
  if (sort) order.sort((a, b) => compare(plain[a][sort.by], plain[b][sort.by]) * (sort.isDown ? -1 : 1));
  /** Up, down, and as it was. @param {number} by */
  const turn = (by) => setSort(sort?.by !== by ? { by, isDown: Boolean(head[by].number) } : sort.isDown === Boolean(head[by].number) ? { by, isDown: !sort.isDown } : null);
  const kind = (/** @type {number} */ place) =>
    head[place].number ? "number" : head[place].text ? "text" : undefined;
  return html`<div class="wide" tabindex="0" role="group" aria-label=${caption}>
      <table>
        <caption>${caption}</caption>
        <thead>
          <tr>
            ${head.map(
              (column, place) => html`<th scope="col" class=${kind(place)} aria-sort=${sort?.by === place ? (sort.isDown ? "descending" : "ascending") : undefined}>
                ${column.name && html`<button type="button" class="sort" onClick=${() => turn(place)}>${column.name}${sort?.by === place ? (sort.isDown ? " ▼" : " ▲") : ""}</button>`}
              </th>`,
            )}
          </tr>
        </thead>
        <tbody>
          ${order.slice(at * size, (at + 1) * size).map(
            (row) => html`<tr class=${marked?.(row) ? "taken" : undefined}>
              ${rows[row].map((cell, column) => html`<td class=${kind(column)}>${cell}</td>`)}
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    <div class="tools">
      ${pages > 1 &&
      html`<button type="button" disabled=${at === 0} onClick=${() => setPage(at - 1)}>Previous</button>
        <span>Page ${at + 1} of ${pages}</span>
        <button type="button" disabled=${at === pages - 1} onClick=${() => setPage(at + 1)}>Next</button>`}
      <button type="button" onClick=${() => save(`${name}.csv`, csv([...head, ...more.map((each) => ({ name: each }))], plain), "text/csv")}>Save as CSV</button>
    </div>`;
}

/** Numbers by size, nothing last, and text by letters. @param {string | number} a @param {string | number} b */
const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : a === "" || b === "" ? Number(a === "") - Number(b === "") : String(a).localeCompare(String(b)));

/** @param {{name: string}[]} head @param {(string | number)[][]} rows */
export const csv = (head, rows) => [head.map((column) => column.name), ...rows].map((row) => row.map(inCsv).join(",")).join("\r\n") + "\r\n";

/** Text that somebody else chose and that a spreadsheet would run as a formula stands behind an apostrophe. @param {string | number} cell */
const inCsv = (cell) => {
  const text = typeof cell === "string" && /^[=+\-@\t\r]/.test(cell) ? `'${cell}` : String(cell);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

/**
 * Updates as a table.
 *
 * @param {{ledger: Ledger, updates: import("./ledger.js").Update[], name: string, caption: string, marked?: (row: number) => boolean}} properties
 */
export function Updates({ ledger, updates, name, caption, marked }) {
  const head = [
    { name: "#", number: true },
    { name: "update" },
    { name: "client" },
    { name: "received" },
    { name: "learnt from", number: true },
    { name: "accuracy", number: true },
    { name: "step", number: true },
    { name: "examples", number: true },
  ];
  return html`<${Table} name=${name} caption=${`${caption} Learnt from: how many models were averaged, its client's own before it among them.`} head=${head} marked=${marked}
    rows=${updates.map((each) => [
      each.arrival,
      html`<${Link} id=${each.id} />`,
      html`<${Author} ledger=${ledger} author=${each.author} />`,
      html`<span title=${rfc3339(each.at)}>${since(each.at)}</span>`,
      each.parents.length,
      number(each.metrics.accuracy),
      number(each.step, 2),
      count(each.examples),
    ])}
    plain=${updates.map((each) => [
      each.arrival, each.id, each.author, rfc3339(each.at), each.parents.length, each.metrics.accuracy ?? "", each.step ?? "", each.examples,
    ])} />`;
}

/** @param {{name: string, label: string, value: string, options: Record<string, string>}} properties */
export const Choice = ({ name, label, value, options }) =>
  html`<label>${label}
    <select value=${value} onChange=${(/** @type {any} */ event) => filter({ [name]: event.target.value })}>
      ${Object.entries(options).map(([key, words]) => html`<option value=${key} selected=${key === value}>${words}</option>`)}
    </select></label>`;

/** A colour of style.css as it is now, light or dark. @param {string} name */
export const shade = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A pen for an emptied canvas of so many pixels of the page. @param {HTMLCanvasElement} canvas @param {number} width @param {number} height */
export function penOf(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  const [wide, tall] = [width, height].map((each) => Math.round(each * scale));
  canvas.style.height = `${height}px`;
  if (canvas.width !== wide || canvas.height !== tall) [canvas.width, canvas.height] = [wide, tall];
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  pen.reset();
  pen.scale(scale, scale);
  pen.textBaseline = "middle";
  return pen;
}

/** Paint now, and whenever there is more or less room; returns how to end that. @param {Element} room @param {() => void} paint */
export function painting(room, paint) {
  paint();
  const fit = new ResizeObserver(paint);
  fit.observe(room);
  return () => fit.disconnect();
}

/**
 * Lines over x, by uPlot; a change of the data moves neither zoom nor selection.
 *
 * @param {{name: string, x: string, series: import("./figure.js").Series[], data: (number | null)[][], isTime?: boolean}} properties
 */
export function Chart({ name, x, series, data, isTime = false }) {
  const place = useRef(/** @type {HTMLDivElement | null} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const shape = JSON.stringify([name, x, isTime, series]);
  useEffect(() => {
    const held = /** @type {HTMLDivElement} */ (place.current);
    const line = shade("--line");
    const axis = { stroke: shade("--quiet"), grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    plot.current = new /** @type {any} */ (window).uPlot(
      {
        width: held.clientWidth || 600,
        height: 260,
        scales: { x: { time: isTime } },
        axes: [{ ...axis, label: x, labelSize: 20 }, axis],
        series: [
          { label: x },
          ...series.map((each) => ({
            label: each.name,
            stroke: each.colour,
            width: each.width ?? 1.5,
            dash: each.dash ? [5, 4] : undefined,
            spanGaps: true,
            points: { show: false },
          })),
        ],
        legend: { live: true },
      },
      data,
      held,
    );
    const fit = new ResizeObserver(() => plot.current?.setSize({ width: held.clientWidth, height: 260 }));
    fit.observe(held);
    return () => {
      fit.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => {
    const shown = plot.current;
    if (!shown) return;
    const { min, max } = shown.scales.x;
    const [first, last] = [shown.data[0][0], shown.data[0].at(-1)];
    const isZoomed = min !== undefined && (min > first || max < last);
    shown.setData(data, !isZoomed);
  }, [data]);
  const png = () => plot.current.ctx.canvas.toBlob((/** @type {Blob} */ data) => save(`${name}.png`, data, "image/png"));
  const rows = () => data[0].map((_, row) => data.map((column) => column[row] ?? ""));
  return html`<div class="chart" ref=${place} role="img" aria-label=${`${name}: the table below has the same figures`}></div>
    <div class="tools">
      <button type="button" onClick=${png}>Save as PNG</button>
      <button type="button" onClick=${() => save(`${name}.svg`, svgOf({ x, series, data, isTime }), "image/svg+xml")}>Save as SVG</button>
      <button type="button" onClick=${() => save(`${name}.csv`, csv([{ name: x }, ...series], rows()), "text/csv")}>Save as CSV</button>
    </div>`;
}
