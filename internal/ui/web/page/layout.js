// SPDX-License-Identifier: Apache-2.0

// Places nodes and wires. The same input always has the same result. Nodes that wires
// join form a part. The form of a part decides how it is drawn: a chain in rows, a tree
// from its centre to both sides, and anything else in layers.

// Sizes in pixels. A narrow page has smaller ones.
const WIDE = { box: 144, gap: 124, rowGap: 18 };
const NARROW = { box: 124, gap: 100, rowGap: 16 };
const NARROW_BELOW = 600;
const DOWN = 58; // vertical space for a wire with its label
const PARALLEL = 42; // vertical distance of parallel wires
const LEVEL = 0.8; // level part of an edge with a bend
const LABEL = 100; // horizontal space for the label of a vertical wire
const TITLE = 26;
const BETWEEN = 22; // between parts

const natural = (a, b) => a.localeCompare(b, "en", { numeric: true });

// hub returns the vertex that stands for a wire with more than two ends.
const hubId = (wire) => `wire:${wire}`;

// shortName returns the name of a wire without that of its lab.
export const shortName = (wire) => wire.replace(/^[^.]*\./, "");

// layout places nodes ({id, height}) and wires ({name, ends: [id, ...]}) in a picture of
// the given width. It returns the boxes ({id, x, y, w, h}), the hubs ({wire, x, y, w, h}),
// the edges ({wire, from, to, points, label, vertical}) and the titles ({text, x, y}). x
// and y of boxes are those of the top left corner. An edge of a wire with two ends is
// between its nodes; otherwise it is between a node and the hub.
export function layout(nodes, wires, width) {
  const size = width < NARROW_BELOW ? NARROW : WIDE;
  const graph = makeGraph(nodes, wires);
  const picture = { width, height: 0, boxes: [], hubs: [], edges: [], titles: [] };
  const alone = [];
  for (const part of parts(graph)) {
    if (part.length === 1) alone.push(part[0]);
    else place(picture, graph, part, size);
  }
  grid(picture, graph, alone.sort(natural), size);
  return picture;
}

// makeGraph returns the vertices by ID, with their neighbours and heights.
function makeGraph(nodes, wires) {
  const all = new Map();
  const vertex = (id, height, wire) => all.set(id, { id, height, wire, next: new Set() });
  for (const n of nodes) vertex(n.id, n.height);
  const edges = [];
  for (const w of [...wires].sort((a, b) => natural(a.name, b.name))) {
    const ends = w.ends.filter((id) => all.has(id));
    if (ends.length === 2 && ends[0] !== ends[1]) {
      edges.push({ wire: w.name, a: ends[0], b: ends[1] });
    } else if (ends.length > 1) {
      const id = hubId(w.name);
      vertex(id, 26, w.name);
      for (const end of ends) edges.push({ wire: w.name, a: end, b: id });
    }
  }
  for (const e of edges) {
    all.get(e.a).next.add(e.b);
    all.get(e.b).next.add(e.a);
  }
  const graph = { all, edges };
  for (const v of all.values()) {
    const most = Math.max(0, ...[...v.next].map((id) => parallel(graph, v.id, id).length));
    v.height = Math.max(v.height, most > 1 ? most * PARALLEL + 12 : 0);
  }
  return graph;
}

// parallel returns the edges between two vertices.
const parallel = (graph, a, b) => graph.edges.filter((e) => (e.a === a && e.b === b) || (e.a === b && e.b === a));

// neighbours returns the neighbours of a vertex in the order of their names.
const neighbours = (graph, id) => [...graph.all.get(id).next].sort(natural);

// distances returns the distances of all vertices that can be reached from one.
function distances(graph, from) {
  const far = new Map([[from, 0]]);
  for (const id of far.keys()) {
    for (const next of neighbours(graph, id)) if (!far.has(next)) far.set(next, far.get(id) + 1);
  }
  return far;
}

// parts returns the vertices of each part; the largest part is first.
function parts(graph) {
  const seen = new Set(), all = [];
  for (const id of [...graph.all.keys()].sort(natural)) {
    if (seen.has(id)) continue;
    const part = [...distances(graph, id).keys()];
    for (const each of part) seen.add(each);
    all.push(part.sort(natural));
  }
  return all.sort((a, b) => b.length - a.length || natural(a[0], b[0]));
}

function place(picture, graph, part, size) {
  const links = part.reduce((sum, id) => sum + graph.all.get(id).next.size, 0) / 2;
  const degree = (id) => graph.all.get(id).next.size;
  const tree = links === part.length - 1;
  const at = tree && part.every((id) => degree(id) <= 2) ? chain(graph, part, size, picture.width)
    : tree ? mindMap(graph, part, size, picture.width)
      : layers(graph, part, size, picture.width);
  finish(picture, graph, part, at, size);
}

// chain places a path in rows, in alternating directions.
function chain(graph, part, size, width) {
  const end = part.find((id) => graph.all.get(id).next.size === 1);
  const order = [...distances(graph, end).keys()];
  const perRow = Math.max(1, Math.min(order.length, Math.floor((width + size.gap) / (size.box + size.gap))));
  const at = new Map();
  let top = 0;
  for (let first = 0; first < order.length; first += perRow) {
    const row = order.slice(first, first + perRow);
    const height = Math.max(...row.map((id) => graph.all.get(id).height));
    const back = (first / perRow) % 2 === 1;
    row.forEach((id, n) => {
      const column = back ? perRow - 1 - n : n;
      at.set(id, { x: column * (size.box + size.gap) + size.box / 2, y: top + height / 2 });
    });
    top += height + DOWN;
  }
  return at;
}

// mindMap places a tree: its centre in the middle and the branches on both sides, or on
// the right side if the picture is narrow.
function mindMap(graph, part, size, width) {
  const reach = (id) => Math.max(...distances(graph, id).values());
  const centre = [...part].sort((a, b) => reach(a) - reach(b) || graph.all.get(b).next.size - graph.all.get(a).next.size || natural(a, b))[0];
  const branches = neighbours(graph, centre);
  const depth = (id, from) => 1 + Math.max(0, ...neighbours(graph, id).filter((n) => n !== from).map((n) => depth(n, id)));
  const widest = (list) => Math.max(0, ...list.map((id) => depth(id, centre)));
  const half = Math.ceil(branches.length / 2);
  let right = branches.slice(0, half), left = branches.slice(half);
  const columns = widest(right) + widest(left) + 1;
  if (columns * size.box + (columns - 1) * size.gap > width) [right, left] = [branches, []];
  const at = new Map();
  const step = size.box + size.gap;
  // side places the branches below each other and returns their total height.
  const side = (list, sign) => {
    let top = 0;
    const put = (id, from, column) => {
      const children = neighbours(graph, id).filter((n) => n !== from);
      const own = graph.all.get(id).height;
      const start = top;
      const ys = children.map((n) => put(n, id, column + 1));
      let y = ys.length ? (ys[0] + ys.at(-1)) / 2 : start + own / 2;
      y = Math.max(y, start + own / 2);
      top = Math.max(top, y + own / 2 + (ys.length ? 0 : size.rowGap));
      at.set(id, { x: sign * column * step, y });
      return y;
    };
    for (const id of list) put(id, centre, 1);
    return top - size.rowGap;
  };
  const heights = [side(right, 1), side(left, -1)];
  const middle = Math.max(...heights, graph.all.get(centre).height) / 2;
  for (const [id, p] of at) p.y += middle - (p.x > 0 ? heights[0] : heights[1]) / 2;
  at.set(centre, { x: 0, y: middle });
  return at;
}

// layers places the vertices by their distance from an end: each distance is a column, or
// a row if the picture is narrow.
function layers(graph, part, size, width) {
  const reach = new Map(part.map((id) => [id, Math.max(...distances(graph, id).values())]));
  const first = [...part].sort((a, b) => reach.get(b) - reach.get(a) || graph.all.get(a).next.size - graph.all.get(b).next.size || natural(a, b))[0];
  const far = distances(graph, first);
  const all = [];
  for (const id of part) (all[far.get(id)] ??= []).push(id);
  for (let n = 1; n < all.length; n++) {
    const before = all[n - 1];
    const mean = (id) => {
      const found = neighbours(graph, id).map((other) => before.indexOf(other)).filter((i) => i >= 0);
      return found.reduce((a, b) => a + b, 0) / found.length;
    };
    all[n].sort((a, b) => mean(a) - mean(b) || natural(a, b));
  }
  const at = new Map();
  const columns = all.length * size.box + (all.length - 1) * size.gap <= width;
  let top = 0;
  // below returns the space below the nth vertex of a layer: more if a wire is there.
  const below = (layer, n) => (n + 1 === layer.length ? 0 : graph.all.get(layer[n]).next.has(layer[n + 1]) ? DOWN : 2 * size.rowGap);
  const heights = all.map((layer) => layer.reduce((sum, id, n) => sum + graph.all.get(id).height + below(layer, n), 0));
  all.forEach((layer, n) => {
    if (columns) {
      let y = (Math.max(...heights) - heights[n]) / 2;
      layer.forEach((id, i) => {
        const { height } = graph.all.get(id);
        at.set(id, { x: n * (size.box + size.gap), y: y + height / 2 });
        y += height + below(layer, i);
      });
      return;
    }
    const height = Math.max(...layer.map((id) => graph.all.get(id).height));
    layer.forEach((id, i) => at.set(id, { x: (i - (layer.length - 1) / 2) * (size.box + size.rowGap), y: top + height / 2 }));
    top += height + DOWN;
  });
  return at;
}

// finish moves a part below the earlier ones and to the middle, and adds it.
function finish(picture, graph, part, at, size) {
  const nodes = part.filter((id) => !graph.all.get(id).wire);
  const title = labOf(nodes);
  let top = picture.height + (picture.height ? BETWEEN : 0);
  if (title) {
    picture.titles.push({ text: `lab ${title}`, x: 0, y: top + 14 });
    top += TITLE;
  }
  const xs = [...at.values()].map((p) => p.x);
  const span = Math.max(...xs) - Math.min(...xs) + size.box;
  picture.width = Math.max(picture.width, span);
  const dx = (picture.width - span) / 2 - Math.min(...xs) + size.box / 2;
  const dy = top - Math.min(...[...at].map(([id, p]) => p.y - graph.all.get(id).height / 2));
  const boxes = new Map();
  for (const [id, p] of at) {
    const v = graph.all.get(id);
    const w = v.wire ? Math.min(size.box, 7 * shortName(v.wire).length + 20) : size.box;
    const box = { id, x: p.x + dx - w / 2, y: p.y + dy - v.height / 2, w, h: v.height };
    boxes.set(id, box);
    if (v.wire) picture.hubs.push({ ...box, wire: v.wire });
    else picture.boxes.push(box);
    picture.height = Math.max(picture.height, box.y + box.h);
  }
  // facing counts the edges of a vertex towards the side of another one.
  const facing = (from, to) => {
    const side = (id) => (beside(boxes.get(id), boxes.get(from)) ? Math.sign(at.get(id).x - at.get(from).x) : 2 * Math.sign(at.get(id).y - at.get(from).y));
    return neighbours(graph, from).filter((id) => side(id) === side(to)).length;
  };
  const done = new Set();
  for (const e of graph.edges) {
    if (!boxes.has(e.a) || done.has(e)) continue;
    const all = parallel(graph, e.a, e.b);
    all.forEach((each, n) => {
      done.add(each);
      const drawn = { wire: each.wire, from: each.a, to: each.b, ...line(boxes.get(each.a), boxes.get(each.b), n - (all.length - 1) / 2, all.length, facing(each.a, each.b) - facing(each.b, each.a)) };
      // The label of a vertical edge is on its outer side, if there is room.
      const { x } = drawn.label;
      const outer = x < picture.width / 2 - 1 ? -1 : 1;
      drawn.side ||= outer < 0 ? (x < LABEL ? 1 : -1) : picture.width - x < LABEL ? -1 : 1;
      picture.edges.push(drawn);
    });
  }
}

// labOf returns the name of the lab whose nodes these are: instances of a lab are named
// LAB.NODE.
function labOf(nodes) {
  const lab = nodes[0].includes(".") ? nodes[0].slice(0, nodes[0].indexOf(".")) : "";
  return lab && nodes.every((id) => id.startsWith(`${lab}.`)) ? lab : "";
}

// beside reports whether an edge between two boxes leaves them at their sides, and not at
// their top and bottom.
function beside(a, b) {
  const apart = Math.max(b.x - (a.x + a.w), a.x - (b.x + b.w));
  const above = a.y + a.h <= b.y || b.y + b.h <= a.y;
  return apart >= 0 && !(above && apart < 40);
}

// line returns the points of an edge between two boxes and the place of its label. offset
// is the position among `count` parallel edges; 0 is the middle one. more is the
// difference of the numbers of edges that leave a and b on these sides.
function line(a, b, offset, count, more) {
  const ca = { x: a.x + a.w / 2, y: a.y + a.h / 2 }, cb = { x: b.x + b.w / 2, y: b.y + b.h / 2 };
  if (beside(a, b)) {
    const right = cb.x > ca.x;
    const p = { x: right ? a.x + a.w : a.x, y: ca.y + offset * PARALLEL };
    const q = { x: right ? b.x : b.x + b.w, y: cb.y + offset * PARALLEL };
    return { ...bent(p, q, "x", "y", more), vertical: false };
  }
  const down = cb.y > ca.y;
  const dx = count > 1 ? (offset * 2 * 40) / (count - 1) : 0;
  const p = { x: ca.x + dx, y: down ? a.y + a.h : a.y }, q = { x: cb.x + dx, y: down ? b.y : b.y + b.h };
  return { ...bent(p, q, "y", "x", more), vertical: true, side: Math.sign(offset) };
}

// bent returns the points of an edge along an axis, and the place of its label. If the
// edge is not straight, it runs along the axis from the vertex with fewer edges, with its
// label there, and bends near the other vertex.
function bent(p, q, along, across, more) {
  if (Math.abs(p[across] - q[across]) < 2) return { points: [p, q], label: { x: (p.x + q.x) / 2, y: (p.y + q.y) / 2 } };
  const [leaf, root] = more > 0 ? [q, p] : [p, q];
  const place = (part) => ({ [along]: leaf[along] + part * (root[along] - leaf[along]), [across]: leaf[across] });
  const points = [leaf, place(LEVEL), root];
  return { points: more > 0 ? points.reverse() : points, label: place(LEVEL / 2 + 0.02) };
}

// grid places nodes without wires in rows below the parts.
function grid(picture, graph, ids, size) {
  if (ids.length === 0) return;
  const gap = 16;
  let top = picture.height + (picture.height ? BETWEEN : 0);
  const perRow = Math.max(1, Math.floor((picture.width + gap) / (size.box + gap)));
  for (let first = 0; first < ids.length; first += perRow) {
    const row = ids.slice(first, first + perRow);
    const height = Math.max(...row.map((id) => graph.all.get(id).height));
    row.forEach((id, n) => picture.boxes.push({ id, x: n * (size.box + gap), y: top, w: size.box, h: height }));
    top += height + gap;
  }
  picture.height = top - gap;
}
