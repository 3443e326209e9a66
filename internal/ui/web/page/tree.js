// SPDX-License-Identifier: Apache-2.0

// Shows the table of connections, with the subflows below each MPTCP connection. It
// reuses the rows of the previous snapshot and writes only changed cells, so that a
// thousand connections do not block the page.

import { bytes, count, micros, rate } from "./format.js";
import { path } from "./changes.js";

const STEP = 50; // connections shown; "Show more" adds as many

export class Tree {
  // choose(connection, subflow) is called with the IDs of a row when its button is
  // pressed. packets(connection, subflow) is called when the user requests the packets
  // of a row.
  constructor(table, more, choose, packets) {
    this.body = table.tBodies[0];
    this.more = more;
    this.choose = choose;
    this.packets = packets;
    this.rows = new Map(); // rows by key
    this.limit = STEP;
    more.addEventListener("click", () => {
      this.limit += STEP;
      this.update(...this.last);
    });
  }

  // update shows connections, the busiest first. gone is from Changes. colourOf returns
  // the colour of a key in the graph, or undefined.
  update(connections, gone, selected, colourOf) {
    this.last = [connections, gone, selected, colourOf];
    const shown = connections.slice(0, this.limit);
    const wanted = shown.flatMap((c) => rowsOf(c, gone.get(c.id) ?? []));
    const keys = new Set(wanted.map((r) => r.key));
    for (const [key, row] of this.rows) {
      if (keys.has(key)) continue;
      row.tr.remove();
      this.rows.delete(key);
    }
    let next = this.body.firstElementChild;
    for (const model of wanted) {
      const row = this.rows.get(model.key) ?? this.add(model);
      this.fill(row, model, selected, colourOf(model.key));
      if (row.tr === next) next = next.nextElementSibling;
      else this.body.insertBefore(row.tr, next);
    }
    this.more.hidden = connections.length <= this.limit;
    const left = connections.length - shown.length;
    if (left > 0) this.more.textContent = `Show more (${left} are not shown)`;
  }

  add(model) {
    const tr = document.createElement("tr");
    const head = document.createElement("th");
    head.scope = "row";
    const button = document.createElement("button");
    button.type = "button";
    const swatch = document.createElement("i");
    const name = document.createElement("span");
    const notes = document.createElement("small");
    button.append(swatch, name);
    const packets = document.createElement("button");
    packets.type = "button";
    packets.className = "packets";
    packets.textContent = "packets";
    packets.addEventListener("click", () => this.packets(model.connection, model.subflow));
    head.append(packets, button, notes);
    tr.append(head);
    button.addEventListener("click", () => this.choose(model.connection, model.subflow));
    const cells = LABELS.map((label) => {
      const td = document.createElement("td");
      td.dataset.label = label;
      tr.append(td);
      return td;
    });
    const row = { tr, button, swatch, name, notes, cells, packets };
    this.rows.set(model.key, row);
    return row;
  }

  fill(row, model, selected, colour) {
    write(row.name, model.name);
    row.packets.setAttribute("aria-label", `packets of ${model.name}`);
    row.packets.hidden = model.kind.endsWith("gone");
    write(row.notes, model.notes.join(" · "));
    model.cells.forEach((text, i) => write(row.cells[i], text));
    if (row.tr.className !== model.kind) row.tr.className = model.kind;
    row.tr.dataset.id = model.subflow ?? model.connection;
    row.tr.dataset.iface = model.iface ?? "";
    const pressed = selected && selected.connection === model.connection && (selected.subflow ?? null) === (model.subflow ?? null);
    if (row.pressed !== pressed) row.button.setAttribute("aria-pressed", String(Boolean((row.pressed = pressed))));
    const line = colour === undefined ? "none" : `line-${colour}`;
    if (row.swatch.className !== line) row.swatch.className = line;
  }
}

const LABELS = ["State", "Out", "In", "Sent", "Received", "RTT", "Cwnd", "Retr."];

// write changes a text only if it differs.
function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// rowsOf returns the rows of a connection. A plain TCP connection has one row.
function rowsOf(c, gone) {
  const subflows = c.subflows ?? [];
  const tree = Boolean(c.token) && !c.fallback;
  const own = tree ? {} : (subflows[0] ?? {});
  const notes = [c.proto === "mptcp" || c.token ? "MPTCP" : c.proto.toUpperCase()];
  if (c.fallback) notes[0] = "MPTCP, fell back to plain TCP";
  else if (c.token) notes.push(`token ${c.token}`, subflows.length === 1 ? "1 subflow" : `${subflows.length} subflows`);
  const who = c.process ? `${c.process}${c.pid ? `(${c.pid})` : ""} ` : "";
  const rows = [{
    key: tree || !own.id ? c.id : `${c.id}/${own.id}`,
    kind: "connection", connection: c.id, iface: own.iface,
    name: `${who}${c.local} → ${c.remote}`,
    notes: own.iface ? [...notes, own.iface] : notes,
    cells: [c.state, rate(c.tx_bit_s), rate(c.rx_bit_s), bytes(c.bytes_sent), bytes(c.bytes_received),
      tree ? "" : micros(own.rtt_us), tree ? "" : count(own.cwnd), count(c.retrans)],
  }];
  if (!tree) return rows;
  for (const s of subflows) {
    rows.push({
      key: `${c.id}/${s.id}`, kind: "subflow", connection: c.id, subflow: s.id, iface: s.iface,
      name: path(s), notes: s.backup ? ["backup"] : [],
      cells: [s.state, rate(s.tx_bit_s), rate(s.rx_bit_s), bytes(s.bytes_sent), bytes(s.bytes_received),
        micros(s.rtt_us), count(s.cwnd), count(s.retrans)],
    });
  }
  for (const { subflow: s } of gone) {
    if (subflows.some((now) => now.id === s.id)) continue;
    rows.push({
      key: `${c.id}/${s.id}`, kind: "subflow gone", connection: c.id, subflow: s.id, iface: s.iface,
      name: path(s), notes: [],
      cells: ["gone", "", "", bytes(s.bytes_sent), bytes(s.bytes_received), "", "", count(s.retrans)],
    });
  }
  return rows;
}
