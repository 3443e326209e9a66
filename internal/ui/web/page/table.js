// SPDX-License-Identifier: Apache-2.0

// A table that reuses its rows and writes only changed cells.

export class Table {
  // labels are the headings of all columns except the first.
  constructor(table, labels) {
    this.body = table.tBodies[0];
    this.labels = labels;
    this.rows = new Map(); // rows by key
  }

  // update shows rows ({key, kind, name, notes, cells, colour, href}). kind is the class
  // of a row. A row with href is a link.
  update(models) {
    const keys = new Set(models.map((m) => m.key));
    for (const [key, row] of this.rows) {
      if (keys.has(key)) continue;
      row.tr.remove();
      this.rows.delete(key);
    }
    let next = this.body.firstElementChild;
    for (const m of models) {
      const row = this.rows.get(m.key) ?? this.add(m);
      write(row.name, m.name);
      write(row.notes, m.notes);
      m.cells.forEach((text, n) => write(row.cells[n], text));
      if (row.tr.className !== m.kind) row.tr.className = m.kind;
      const line = m.colour === undefined ? "none" : `line-${m.colour}`;
      if (row.swatch.className !== line) row.swatch.className = line;
      if (row.tr === next) next = next.nextElementSibling;
      else this.body.insertBefore(row.tr, next);
    }
  }

  add(model) {
    const make = (parent, kind) => parent.appendChild(document.createElement(kind));
    const tr = document.createElement("tr");
    tr.dataset.key = model.key;
    const head = make(tr, "th");
    head.scope = "row";
    const swatch = make(head, "i");
    const name = make(head, model.href ? "a" : "span");
    if (model.href) name.href = model.href;
    const notes = make(head, "small");
    const cells = this.labels.map((label) => {
      const td = make(tr, "td");
      td.dataset.label = label;
      return td;
    });
    const row = { tr, swatch, name, notes, cells };
    this.rows.set(model.key, row);
    return row;
  }
}

function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
