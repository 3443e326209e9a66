// SPDX-License-Identifier: Apache-2.0

// Draws the instances and the wires between them, with the rates on the wires. The
// drawing changes only when an instance or a wire does; otherwise only texts change.

import { rate, short } from "./format.js";
import { layout, shortName } from "./layout.js";

const SVG = "http://www.w3.org/2000/svg";
const LINE = 15;
const MOST_LINES = 4; // interfaces listed in a box

function element(parent, name, attributes = {}, text) {
  const e = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  if (text !== undefined) e.textContent = text;
  return parent.appendChild(e);
}

const write = (node, text) => {
  if (node.textContent !== text) node.textContent = text;
};

// fit writes a text, and cuts it to a width in pixels.
function fit(node, text, width) {
  if (node.full === text) return;
  node.full = text;
  node.textContent = text;
  for (let n = text.length; n > 1 && node.getComputedTextLength() > width;) {
    n = Math.min(n - 1, Math.floor((n * width) / node.getComputedTextLength()));
    node.textContent = `${text.slice(0, n)}…`;
  }
}

// wiresOf returns the wires ({name, ends: [{node, link}]}) of the nodes, by name.
export function wiresOf(nodes) {
  const all = new Map();
  for (const node of nodes) {
    for (const link of node.links) {
      if (link.type !== "wire" || !link.host) continue;
      if (!all.has(link.host)) all.set(link.host, { name: link.host, ends: [] });
      all.get(link.host).ends.push({ node: node.name, link });
    }
  }
  return all;
}

// otherLinks returns the interfaces of a node that the picture does not draw as lines.
const otherLinks = (node, wires) => node.links.filter((l) => l.type !== "wire" || (wires.get(l.host)?.ends.length ?? 0) < 2);

// linkText describes an interface in a box; a narrow box has no room for its type.
function linkText(l, narrow) {
  const type = narrow ? "" : `${l.type} `;
  if (l.type === "wire") return `${l.name} ${shortName(l.host)}: no peer`;
  if (l.state && l.state !== "up") return `${l.name} ${l.type}: ${l.state}`;
  return `${l.name} ${type}↓${short(l.rx_bit_s)} ↑${short(l.tx_bit_s)}`;
}

export class Picture {
  // open(name) is called when the user selects an instance.
  constructor(svg, open) {
    this.svg = svg;
    this.open = open;
    this.drawn = "";
  }

  draw(nodes) {
    const wires = wiresOf(nodes);
    const width = Math.max(280, this.svg.parentElement.clientWidth - 4);
    const shape = JSON.stringify([width, nodes.map((n) => [n.name, n.command, Boolean(n.problem), otherLinks(n, wires).length,
      n.links.map((l) => [l.name, l.type, l.host])])]);
    if (shape !== this.drawn) {
      this.drawn = shape;
      this.build(nodes, wires, width);
    }
    const byName = new Map(nodes.map((n) => [n.name, n]));
    for (const update of this.updates) update(byName, wires);
  }

  build(nodes, wires, width) {
    const { svg } = this;
    this.updates = [];
    svg.replaceChildren();
    const lines = (n) => 1 + (n.command?.length ? 1 : 0) + (n.problem ? 1 : Math.min(MOST_LINES, otherLinks(n, wires).length));
    const picture = layout(nodes.map((n) => ({ id: n.name, height: Math.max(46, 16 + lines(n) * LINE) })),
      [...wires.values()].map((w) => ({ name: w.name, ends: w.ends.map((e) => e.node) })), width);
    const height = picture.height + 4;
    svg.setAttribute("viewBox", `-2 -2 ${picture.width + 4} ${height}`);
    svg.setAttribute("width", picture.width + 4);
    svg.setAttribute("height", height);
    for (const t of picture.titles) element(svg, "text", { x: t.x, y: t.y, class: "lab" }, t.text);
    for (const e of picture.edges) this.edge(svg, e);
    for (const h of picture.hubs) {
      const g = element(svg, "g", { class: "hub" });
      element(g, "rect", { x: h.x, y: h.y, width: h.w, height: h.h, rx: h.h / 2 });
      fit(element(g, "text", { x: h.x + h.w / 2, y: h.y + h.h / 2 + 4, "text-anchor": "middle" }), shortName(h.wire), h.w - 12);
      element(g, "title", {}, `wire ${h.wire}`);
    }
    const titles = new Set(picture.titles.map((t) => t.text.slice(4)));
    for (const b of picture.boxes) {
      const node = nodes.find((n) => n.name === b.id);
      this.box(svg, b, node, lines(node), titles);
    }
  }

  // edge draws a wire. `from` is a node; `to` is a node or the hub of the wire.
  edge(svg, e) {
    const [p, q] = [e.points[0], e.points.at(-1)];
    const g = element(svg, "g", { class: "wire", "data-wire": e.wire });
    const path = element(g, "path", { d: `M${e.points.map((at) => `${at.x} ${at.y}`).join("L")}` });
    const hub = e.to.startsWith("wire:");
    let { x, y } = e.label, anchor = "middle";
    if (e.vertical) [x, anchor] = e.side < 0 ? [x - 6, "end"] : [x + 6, "start"];
    const name = element(g, "text", { x, y: hub ? y - 2 : y - 6, "text-anchor": anchor, class: "name" }, hub ? "" : shortName(e.wire));
    const rates = element(g, "text", { x, y: hub ? y - 6 : y + 15, "text-anchor": anchor, class: "rates" });
    const title = element(g, "title");
    const forward = e.vertical ? q.y > p.y : q.x > p.x;
    const [there, back] = e.vertical ? ["↓", "↑"] : ["→", "←"];
    this.updates.push((nodes, wires) => {
      const ends = wires.get(e.wire)?.ends ?? [];
      const a = ends.find((end) => end.node === e.from)?.link, b = hub ? undefined : ends.find((end) => end.node === e.to)?.link;
      if (!a) return;
      const out = a.tx_bit_s ?? b?.rx_bit_s, into = a.rx_bit_s ?? b?.tx_bit_s;
      const down = [a, b].some((l) => l?.state && l.state !== "up");
      write(rates, down ? "down" : forward ? `${there}${short(out)} ${back}${short(into)}` : `${there}${short(into)} ${back}${short(out)}`);
      const busy = (out ?? 0) + (into ?? 0);
      g.setAttribute("class", `wire${down ? " down" : busy > 1000 ? " busy" : ""}`);
      path.setAttribute("stroke-width", busy > 1000 ? (1.5 + Math.min(2.5, Math.max(0, Math.log10(busy / 1e5) / 2))).toFixed(1) : 1.5);
      write(title, `wire ${e.wire}: ${e.from} ${a.name}${b ? ` – ${e.to} ${b.name}` : ""}; out of ${e.from}: ${rate(out)}, in: ${rate(into)}`);
      name.setAttribute("visibility", name.textContent ? "visible" : "hidden");
    });
  }

  box(svg, b, node, lines, labs) {
    const a = element(svg, "a", { href: `#${encodeURIComponent(node.name)}`, class: "node", "data-node": node.name });
    element(a, "rect", { x: b.x, y: b.y, width: b.w, height: b.h, rx: 7 });
    const lab = node.name.slice(0, node.name.indexOf("."));
    const label = labs.has(lab) ? node.name.slice(lab.length + 1) : node.name;
    const inner = b.w - 12;
    let y = b.y + (b.h - lines * LINE) / 2 + 12;
    const text = (content, kind) => {
      const t = element(a, "text", { x: b.x + 7, y, class: kind });
      y += LINE;
      fit(t, content, inner);
      return t;
    };
    text(label, "name");
    if (node.command?.length) text(node.command.join(" "), "quiet");
    const title = element(a, "title");
    const rows = [];
    if (node.problem) rows.push(text("", "bad"));
    else for (let n = 0; n < MOST_LINES; n++) rows.push(text("", "link"));
    this.updates.push((nodes, wires) => {
      const now = nodes.get(node.name);
      if (!now) return;
      const others = otherLinks(now, wires);
      rows.forEach((row, n) => {
        const more = n === MOST_LINES - 1 && others.length > MOST_LINES;
        fit(row, now.problem ?? (more ? `and ${others.length - n} more` : others[n] ? linkText(others[n], inner < 120) : ""), inner);
      });
      write(title, [node.name, now.stack, now.kernel, (now.command ?? []).join(" "), now.problem,
        ...now.links.map((l) => `${l.name} ${l.type}${l.host ? ` ${l.host}` : ""} ${(l.addrs ?? []).join(" ")}`)].filter(Boolean).join("\n"));
      a.setAttribute("class", `node${now.problem ? " bad" : ""}`);
      a.setAttribute("aria-label", `${node.name}, in ${rate(now.rx_bit_s)}, out ${rate(now.tx_bit_s)}`);
    });
    a.addEventListener("click", (event) => {
      event.preventDefault();
      this.open(node.name);
    });
  }
}
