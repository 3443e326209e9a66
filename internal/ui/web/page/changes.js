// SPDX-License-Identifier: Apache-2.0

// Finds the changes from one snapshot to the next: paths that were added or
// removed.

const LINGER = 15000; // ms for which a subflow that has ended is still shown
const MOST = 50; // entries kept

export class Changes {
  constructor() {
    this.marks = []; // {time, text, bad}, newest last
    this.gone = new Map(); // maps a connection to its ended subflows, [{subflow, time}]
    this.before = null;
  }

  // take compares a snapshot with the previous one.
  take(snapshot, ms) {
    if (this.before) {
      this.links(this.before.links ?? [], snapshot.links ?? [], ms);
      this.connections(this.before.connections ?? [], snapshot.connections ?? [], ms);
    }
    this.before = snapshot;
    for (const [id, list] of this.gone) {
      const left = list.filter((g) => ms - g.time < LINGER);
      if (left.length) this.gone.set(id, left);
      else this.gone.delete(id);
    }
  }

  mark(time, bad, text) {
    this.marks.push({ time, bad, text });
    if (this.marks.length > MOST) this.marks.shift();
  }

  links(before, now, ms) {
    const old = new Map(before.map((l) => [l.name, l]));
    for (const link of now) {
      const was = old.get(link.name);
      old.delete(link.name);
      if (!was) this.mark(ms, false, `interface ${link.name} was added`);
      else if (was.state !== link.state) this.mark(ms, link.state !== "up", `interface ${link.name}: ${link.state}`);
    }
    for (const name of old.keys()) this.mark(ms, true, `interface ${name} is gone`);
  }

  // connections compares only connections that are in both snapshots, because the
  // start or end of a connection is not a change of a path.
  connections(before, now, ms) {
    const old = new Map(before.map((c) => [c.id, c]));
    for (const c of now) {
      const was = old.get(c.id);
      if (!was || !c.token) continue;
      const subflows = new Map((was.subflows ?? []).map((s) => [s.id, s]));
      for (const s of c.subflows ?? []) {
        if (!subflows.delete(s.id)) this.mark(ms, false, `subflow ${path(s)} joined ${owner(c)}`);
      }
      for (const s of subflows.values()) {
        this.mark(ms, true, `subflow ${path(s)} of ${owner(c)} is gone`);
        this.gone.set(c.id, [...(this.gone.get(c.id) ?? []), { subflow: s, time: ms }].slice(-8));
      }
      if (!was.fallback && c.fallback) this.mark(ms, true, `${owner(c)} fell back to plain TCP`);
    }
  }
}

export const path = (s) => `${s.iface ? s.iface + " " : ""}${s.local} → ${s.remote}`;
const owner = (c) => c.process || c.local;
