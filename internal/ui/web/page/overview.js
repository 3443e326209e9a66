// SPDX-License-Identifier: Apache-2.0

// Shows all instances: a picture with the wires between them, and a table.

import { duration, rate } from "./format.js";
import { Picture } from "./picture.js";
import { Table } from "./table.js";

const $ = (id) => document.getElementById(id);

const table = new Table($("instances"), ["In", "Out", "Stack", "Interfaces", "Running for"]);

let picture = null;
let newest = null;

// begin shows the overview from now on. open(name) is called when the user selects an
// instance.
export function begin(open) {
  picture ??= new Picture($("picture"), open);
  newest = null;
}

// take shows an overview, and returns whether any instance is running.
export function take(overview) {
  newest = overview;
  draw();
  return overview.instances.length > 0;
}

let drawing = false;

function draw() {
  if (drawing || !newest) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    const nodes = newest?.instances ?? [];
    if ($("overview").hidden || nodes.length === 0) return;
    $("picture-count").textContent = `(${nodes.length})`;
    picture.draw(nodes);
    table.update(nodes.map((n) => ({
      key: n.name, kind: n.problem ? "bad" : "", name: n.name, href: `#${encodeURIComponent(n.name)}`,
      notes: n.problem ?? (n.command ?? []).join(" "),
      cells: [rate(n.rx_bit_s), rate(n.tx_bit_s), n.stack, n.links.map((l) => `${l.name}\u00a0${l.type}${l.host ? `:${l.host}` : ""}`).join(", "),
        n.started ? duration(Date.parse(newest.time) - Date.parse(n.started)) : ""],
    })));
  });
}

addEventListener("resize", draw);
