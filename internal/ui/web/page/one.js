// SPDX-License-Identifier: Apache-2.0

// Shows one instance. History and Changes store the snapshots; Graph, Tree and the tables
// draw them.

import { bytes, clock, count, micros, percent, perSecond, rate } from "./format.js";
import { Changes, path } from "./changes.js";
import { Diagnosis } from "./diagnosis.js";
import { COLOURS, Graph } from "./graph.js";
import { History } from "./history.js";
import { Packets } from "./packets.js";
import { Table } from "./table.js";
import { Tree } from "./tree.js";

const $ = (id) => document.getElementById(id);

const graphs = [
  { graph: new Graph($("graph-rate"), rate), metric: "rate" },
  { graph: new Graph($("graph-rtt"), micros), metric: "rtt" },
  { graph: new Graph($("graph-cwnd"), count), metric: "cwnd" },
];
const linkGraph = new Graph($("graph-links"), rate);
const linkTable = new Table($("links"), ["State", "In", "Out", "Received", "Sent", "Dropped"]);

const packets = new Packets($("packets"));
const MOST_FLOWS = 16; // limit of the server

let name = ""; // of the instance
let history, changes, newest, selected, colours; // data of that instance

// reset forgets the data, and shows the instance of a name from now on.
export function reset(instance) {
  packets.close();
  name = instance;
  history = new History();
  changes = new Changes();
  newest = null;
  selected = null; // {connection, subflow}
  colours = new Map(); // colours by the key of the drawn line
  if (name) draw();
}

// choose selects the subflows to draw: those of a connection, or one of them.
function choose(connection, subflow) {
  const same = selected?.connection === connection && selected?.subflow === subflow;
  selected = same ? null : { connection, subflow };
  draw();
}

const tree = new Tree($("connections"), $("more"), choose, (connection, subflow) => {
  const c = newest.connections.find((each) => each.id === connection);
  const flows = (c?.subflows ?? []).filter((s) => !subflow || s.id === subflow);
  if (flows.length) packets.open(name, subflow ? `of ${path(flows[0])}` : `of ${c.local} → ${c.remote}`, flows.slice(0, MOST_FLOWS));
});

const diagnosis = new Diagnosis($("diagnosis"), (connection) => {
  selected = null;
  choose(connection);
});

// ended handles the end of the instance. A later one can have the same name.
export function ended() {
  changes.before = null;
  draw();
}

// take shows a snapshot.
export function take(snapshot) {
  const ms = Date.parse(snapshot.time);
  newest = snapshot;
  changes.take(snapshot, ms);
  history.begin(ms);
  for (const l of snapshot.links ?? []) {
    if (l.name === "lo" && !l.rx_bytes) continue; // lo is unused
    history.put(`link/${l.name}`, "link", l.name, { rx: l.rx_bit_s, tx: l.tx_bit_s });
  }
  for (const c of snapshot.connections ?? []) {
    for (const s of c.subflows ?? []) {
      const both = s.tx_bit_s === undefined && s.rx_bit_s === undefined ? NaN : (s.tx_bit_s ?? 0) + (s.rx_bit_s ?? 0);
      history.put(`${c.id}/${s.id}`, c.id, path(s), { rate: both, rtt: s.rtt_us, cwnd: s.cwnd });
    }
  }
  draw();
}

let drawing = false;

// draw updates the page. Several calls before the browser paints cause one update; a
// hidden page is not drawn.
function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    if (!name) return;
    const lines = chosen();
    drawLinks();
    drawGraphs(lines);
    drawTotals();
    drawTree();
    drawHappened();
  });
}

// chosen returns the lines to draw: the subflows that were busiest in the time
// span, including ended ones. If a connection is selected, only its subflows count.
// A line keeps its colour as long as it is drawn.
function chosen() {
  let lines = [...history.lines.values()].filter((l) => l.group !== "link");
  if (selected) {
    lines = lines.filter((l) => (selected.subflow ? l.key === `${selected.connection}/${selected.subflow}` : l.group === selected.connection));
  }
  const busy = new Map(lines.map((l) => [l, history.recent(l, "rate", span())]));
  lines.sort((a, b) => busy.get(b) - busy.get(a));
  lines = lines.slice(0, COLOURS);
  const keys = new Set(lines.map((l) => l.key));
  for (const key of colours.keys()) if (!keys.has(key)) colours.delete(key);
  for (const l of lines) {
    if (colours.has(l.key)) continue;
    const used = new Set(colours.values());
    colours.set(l.key, [...Array(COLOURS).keys()].find((n) => !used.has(n)));
  }
  return lines.sort((a, b) => (a.name < b.name ? -1 : 1));
}

// span returns the number of seconds that the graphs show. There is about one
// snapshot per second.
const span = () => Number(document.querySelector("input[name=span]:checked").value);

// drawLinks draws the interfaces. The table lists lo only if it is used.
function drawLinks() {
  const now = newest ? Date.parse(newest.time) : Date.now();
  const lines = [...history.lines.values()].filter((l) => l.group === "link").slice(0, COLOURS);
  linkGraph.draw(history, lines.flatMap((line, colour) => [
    { line, metric: "rx", colour }, { line, metric: "tx", colour, below: true },
  ]), changes.marks, now, span());
  const colour = new Map(lines.map((l, n) => [l.name, n]));
  const present = new Set();
  const rows = (newest?.links ?? []).filter((l) => colour.has(l.name)).map((l) => {
    present.add(l.name);
    const type = newest.types?.[l.name];
    const dropped = (l.rx_dropped ?? 0) + (l.tx_dropped ?? 0);
    return {
      key: l.name, kind: l.state === "up" ? "" : "bad", name: l.name, colour: colour.get(l.name),
      notes: [type, ...(l.addrs ?? [])].filter(Boolean).join(" "),
      cells: [l.state, rate(l.rx_bit_s), rate(l.tx_bit_s), bytes(l.rx_bytes), bytes(l.tx_bytes), count(dropped)],
    };
  });
  for (const l of lines) {
    if (!present.has(l.name)) rows.push({ key: l.name, kind: "gone", name: l.name, colour: colour.get(l.name), notes: "", cells: ["gone", "", "", "", "", ""] });
  }
  linkTable.update(rows);
  $("links").hidden = rows.length === 0;
}

function drawGraphs(lines) {
  $("flows").hidden = lines.length === 0;
  const now = newest ? Date.parse(newest.time) : Date.now();
  for (const { graph, metric } of graphs) {
    graph.draw(history, lines.map((line) => ({ line, metric, colour: colours.get(line.key) })), changes.marks, now, span());
  }
  legend($("legend"), lines.map((l) => [colours.get(l.key), `${l.name}  ${rate(history.latest(l, "rate"))}`]));
  $("all").hidden = !selected;
  const c = selected && newest?.connections?.find((each) => each.id === selected.connection);
  $("scope").textContent = !selected ? "" : `of ${c ? `${c.local} → ${c.remote}` : "a connection that has ended"}`;
}

function legend(list, entries) {
  while (list.children.length > entries.length) list.lastElementChild.remove();
  entries.forEach(([colour, text], n) => {
    const li = list.children[n] ?? list.appendChild(document.createElement("li"));
    li.className = `line-${colour}`;
    if (li.textContent !== text) li.textContent = text;
  });
}

function drawTotals() {
  const t = newest?.totals ?? {}, i = newest?.instance;
  const about = i ? [i.stack, i.release, i.engine, i.command].filter(Boolean).join(" · ") : "";
  if ($("about").textContent !== about) $("about").textContent = $("about").title = about;
  const entries = [
    ["In", rate(t.rx_bit_s)], ["Out", rate(t.tx_bit_s)],
    ["Connections", count(t.connections)], ["Subflows", count(t.subflows)], ["New connections / s", perSecond(t.opened_s)],
    ["Retransmissions / s", perSecond(t.retrans_s)], ["Dropped packets", count(t.drops)], ["Resets", count(t.resets)], ["Stack CPU", percent(newest?.cpu?.stack_percent)],
  ];
  const dl = $("totals");
  if (dl.children.length === 0) {
    for (const [name] of entries) {
      const div = dl.appendChild(document.createElement("div"));
      div.appendChild(document.createElement("dt")).textContent = name;
      div.appendChild(document.createElement("dd"));
    }
  }
  entries.forEach(([, value], n) => {
    const dd = dl.children[n].lastElementChild;
    if (dd.textContent !== value) dd.textContent = value;
  });
}

function drawTree() {
  const busy = (c) => (c.subflows ?? []).reduce((sum, s) => {
    const line = history.lines.get(`${c.id}/${s.id}`);
    return sum + (line ? history.recent(line, "rate", 10) : 0);
  }, 0);
  const order = (newest?.connections ?? []).map((c) => [busy(c), c]);
  order.sort(([a, x], [b, y]) => b - a || (x.id < y.id ? -1 : 1));
  const omitted = newest?.totals?.omitted;
  $("count").textContent = newest ? `(${order.length}${omitted ? `, and ${omitted} less busy ones` : ""})` : "";
  tree.update(order.map(([, c]) => c), changes.gone, selected, (key) => colours.get(key));
  $("none").hidden = !newest || order.length > 0;
  $("connections").hidden = order.length === 0;
  diagnosis.update(newest?.why ?? [], newest?.connections ?? []);
}

function drawHappened() {
  const list = $("happened"), marks = changes.marks;
  if (list.shown === marks.at(-1)) return; // the list already shows the newest change
  list.shown = marks.at(-1);
  list.replaceChildren(...marks.toReversed().map((m) => {
    const li = document.createElement("li");
    li.className = m.bad ? "bad" : "good";
    li.textContent = `${clock(m.time)}  ${m.text}`;
    return li;
  }));
}

$("span").addEventListener("change", draw);
$("all").addEventListener("click", () => {
  selected = null;
  draw();
});
addEventListener("resize", () => name && draw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => name && draw());
