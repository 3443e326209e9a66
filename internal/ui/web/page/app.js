// SPDX-License-Identifier: Apache-2.0

// The page receives one event stream. History and Changes store its data; Graph and
// Tree draw the data.

import { clock, count, micros, percent, perSecond, rate } from "./format.js";
import { Changes, path } from "./changes.js";
import { COLOURS, Graph } from "./graph.js";
import { History } from "./history.js";
import { Packets } from "./packets.js";
import { Tree } from "./tree.js";

const $ = (id) => document.getElementById(id);

const graphs = [
  { graph: new Graph($("graph-rate"), rate), metric: "rate" },
  { graph: new Graph($("graph-rtt"), micros), metric: "rtt" },
  { graph: new Graph($("graph-cwnd"), count), metric: "cwnd" },
];
const linkGraph = new Graph($("graph-links"), rate);

const packets = new Packets($("packets"));
const MOST_FLOWS = 16; // limit of the server

let stream = null; // the EventSource
let wanted = decodeURIComponent(location.hash.slice(1)); // name of the instance to show
let instances = [];
let history, changes, newest, selected, colours; // data of that instance

function reset() {
  history = new History();
  changes = new Changes();
  newest = null;
  selected = null; // {connection, subflow}
  colours = new Map(); // colours by the key of the drawn line
}

const tree = new Tree($("connections"), $("more"), (connection, subflow) => {
  const same = selected?.connection === connection && selected?.subflow === subflow;
  selected = same ? null : { connection, subflow };
  draw();
}, (connection, subflow) => {
  const c = newest.connections.find((each) => each.id === connection);
  const flows = (c?.subflows ?? []).filter((s) => !subflow || s.id === subflow);
  if (flows.length) packets.open(wanted, subflow ? `of ${path(flows[0])}` : `of ${c.local} → ${c.remote}`, flows.slice(0, MOST_FLOWS));
});

function say(state, text) {
  const status = $("status");
  status.dataset.state = state;
  if (status.textContent !== text) status.textContent = text;
}

// connect opens the event stream for the wanted instance. If no instance is wanted,
// the server sends only the list of instances.
function connect() {
  stream?.close();
  reset();
  draw();
  say("connecting", "connecting");
  stream = new EventSource(`api/events?instance=${encodeURIComponent(wanted)}`);
  stream.addEventListener("instances", (e) => list(JSON.parse(e.data)));
  stream.addEventListener("snapshot", (e) => take(JSON.parse(e.data)));
  stream.addEventListener("ended", (e) => ended(JSON.parse(e.data)));
  stream.addEventListener("error", () => {
    // The browser reconnects by itself, unless the server has rejected the request.
    const over = stream.readyState === EventSource.CLOSED;
    say("lost", over ? "lklctl web refused this page; open the address that it printed" : "lklctl web does not answer; retrying");
  });
}

// list shows the list of instances. It selects the first one if none is wanted yet or
// the wanted one has ended.
function list(all) {
  instances = all;
  const names = all.map((i) => i.name);
  if (wanted && !names.includes(wanted)) names.unshift(wanted);
  const select = $("instance");
  select.replaceChildren(...names.map((name) => {
    const there = all.some((i) => i.name === name);
    return new Option(there ? name : `${name} (ended)`, name, false, name === wanted);
  }));
  select.disabled = names.length === 0;
  if (all.length === 0 && !wanted) say("ended", "no instance is running; waiting for one");
  if (!wanted && all.length > 0) show(all[0].name);
}

function show(name) {
  packets.close();
  wanted = name;
  window.history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  connect();
}

function ended({ instance, reason }) {
  if (!instance) return;
  const other = instances.some((i) => i.name !== instance);
  say("ended", `${instance} has ended or does not answer: ${reason}. Waiting for it${other ? "; other instances are running" : ""}`);
  changes.before = null; // a later instance can have the same name
  draw();
}

function take(snapshot) {
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
  say("live", "live");
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
    const lines = chosen();
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

function drawGraphs(lines) {
  const now = newest ? Date.parse(newest.time) : Date.now();
  for (const { graph, metric } of graphs) {
    graph.draw(history, lines.map((line) => ({ line, metric, colour: colours.get(line.key) })), changes.marks, now, span());
  }
  const links = [...history.lines.values()].filter((l) => l.group === "link").slice(0, COLOURS);
  linkGraph.draw(history, links.flatMap((line, colour) => [
    { line, metric: "rx", colour }, { line, metric: "tx", colour, dashed: true },
  ]), changes.marks, now, span());
  legend($("legend"), lines.map((l) => [colours.get(l.key), `${l.name}  ${rate(history.latest(l, "rate"))}`]));
  const states = new Map((newest?.links ?? []).map((l) => [l.name, l]));
  legend($("links"), links.map((l, colour) => {
    const link = states.get(l.name);
    return [colour, link ? `${l.name} ${link.state} ${(link.addrs ?? []).join(" ")}` : `${l.name} gone`];
  }));
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
    ["Out", rate(t.tx_bit_s)], ["In", rate(t.rx_bit_s)],
    ["Connections", count(t.connections)], ["Subflows", count(t.subflows)],
    ["Retransmissions per second", perSecond(t.retrans_s)], ["CPU of the stack", percent(newest?.cpu?.stack_percent)],
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
  tree.update(order.map(([, c]) => c), newest?.why, changes.gone, selected, (key) => colours.get(key));
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

$("instance").addEventListener("change", (e) => show(e.target.value));
$("span").addEventListener("change", draw);
$("all").addEventListener("click", () => {
  selected = null;
  draw();
});
addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
connect();
