// SPDX-License-Identifier: Apache-2.0

// Shows why connections are plain TCP, or have no subflow over an interface: one entry
// for all connections that have the same reason.

const MOST = 20; // connections listed in an entry

export class Diagnosis {
  // choose(connection) is called with the ID of a connection that the user selects.
  constructor(section, choose) {
    this.section = section;
    this.list = section.querySelector("ul");
    this.choose = choose;
    this.shown = "";
    this.open = new Set(); // keys of the entries whose connections are listed
  }

  // update shows the groups of a snapshot. connections are those of the snapshot, which
  // may lack some of the groups' connections.
  update(groups, connections) {
    this.section.hidden = groups.length === 0;
    const names = new Map(connections.map((c) => [c.id, `${c.process ? `${c.process}${c.pid ? `(${c.pid})` : ""} ` : ""}${c.local} → ${c.remote}`]));
    const shape = JSON.stringify([groups, groups.map((g) => g.connections.map((id) => names.get(id)))]);
    if (shape === this.shown) return;
    this.shown = shape;
    this.list.replaceChildren(...groups.map((g) => this.entry(g, names)));
  }

  entry(g, names) {
    const make = (kind, name, text) => {
      const e = document.createElement(kind);
      if (name) e.className = name;
      if (text) e.textContent = text;
      return e;
    };
    const li = make("li");
    li.dataset.code = g.code;
    li.dataset.iface = g.iface ?? "";
    const what = g.iface ? `no subflow on ${g.iface}` : "plain TCP";
    const title = make("p", "what");
    title.append(make("b", "", `${g.count === 1 ? "1 connection" : `${g.count} connections`}: ${what}`));
    li.append(title, make("p", "", `${g.varied ? `For example: ${g.text}` : g.text.charAt(0).toUpperCase() + g.text.slice(1)}.`));
    if (g.remedy) li.append(make("p", "remedy", `Remedy: ${g.remedy}`));
    const known = g.connections.filter((id) => names.has(id)).slice(0, MOST);
    if (known.length === 0) return li;
    const key = `${g.code} ${g.iface ?? ""} ${g.address ?? ""}`;
    const details = make("details");
    details.open = this.open.has(key);
    details.addEventListener("toggle", () => this.open[details.open ? "add" : "delete"](key));
    details.append(make("summary", "", known.length < g.count ? `Show ${known.length} of ${g.count} connections` : g.count === 1 ? "Show the connection" : "Show the connections"));
    const list = details.appendChild(make("div"));
    for (const id of known) {
      const button = make("button", "", names.get(id));
      button.type = "button";
      button.addEventListener("click", () => this.choose(id));
      list.append(button);
    }
    li.append(details);
    return li;
  }
}
