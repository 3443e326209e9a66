// SPDX-License-Identifier: Apache-2.0

// Draws a graph of lines over time on a canvas.

const LEFT = 68; // pixels for the labels of the axis
const BOTTOM = 18;
const TOP = 6;
const GAP = 4000; // in ms; a line is interrupted if there is no snapshot for longer than this

// COLOURS is the number of line colours in style.css, from --line-0.
export const COLOURS = 6;

// scale returns a step of 1, 2 or 5 times a power of ten, so that three or four steps
// cover the largest number.
function scale(most) {
  const raw = (most || 1) / 3;
  const power = 10 ** Math.floor(Math.log10(raw));
  return power * [1, 2, 5, 10].find((n) => n * power >= raw);
}

export class Graph {
  // format formats a number of the axis.
  constructor(canvas, format) {
    this.canvas = canvas;
    this.format = format;
  }

  // draw shows lines ({line, metric, colour, below}) of the last `span` seconds before
  // `now`, and marks ({time, text}) on the time axis. Lines that are `below` have a
  // mirrored axis below the others. If there are such lines, lines are stacked: each one
  // shows the sum of itself and the earlier ones.
  draw(history, lines, marks, now, span) {
    const { canvas } = this;
    const width = canvas.clientWidth, height = canvas.clientHeight, ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
    if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
    const ctx = canvas.getContext("2d");
    const style = getComputedStyle(canvas);
    const colour = (name) => style.getPropertyValue(name);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, width, height);
    ctx.font = "11px system-ui, sans-serif";

    const since = now - span * 1000;
    const mirrored = lines.some((l) => l.below);
    const all = lines.map((l) => ({ ...l, points: [] })); // points are {ms, from, to}
    const stacks = [new Map(), new Map()]; // sums so far by ms, above and below the axis
    for (const l of all) {
      const stack = stacks[l.below ? 1 : 0];
      history.points(l.line, l.metric, since, (ms, n) => {
        const from = mirrored ? stack.get(ms) ?? 0 : 0;
        l.points.push({ ms, from, to: from + n });
        if (!Number.isNaN(n)) stack.set(ms, mirrored ? from + n : Math.max(stack.get(ms) ?? 0, n));
      });
    }
    const [above, below] = stacks.map((stack) => Math.max(0, ...stack.values()));
    const step = scale(Math.max(above, below));
    const axis = (most) => Math.max(1, Math.ceil(most / step)) * step;
    const top = axis(above), low = mirrored ? -axis(below) : 0;
    const x = (ms) => LEFT + ((ms - since) / (span * 1000)) * (width - LEFT - 2);
    const y = (n) => TOP + ((top - n) / (top - low)) * (height - TOP - BOTTOM);

    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    for (let n = low; n <= top * 1.001; n += step) {
      ctx.strokeStyle = colour(mirrored && Math.abs(n) < step / 2 ? "--quiet" : "--grid");
      ctx.beginPath();
      ctx.moveTo(LEFT, y(n));
      ctx.lineTo(width, y(n));
      ctx.stroke();
      ctx.fillStyle = colour("--quiet");
      ctx.fillText(this.format(Math.abs(n) < step / 2 ? 0 : Math.abs(n)), LEFT - 6, y(n));
    }
    ctx.textBaseline = "bottom";
    const every = span <= 60 ? 15 : span <= 120 ? 30 : 60;
    for (let ago = 0; ago < span; ago += every) {
      ctx.textAlign = ago === 0 ? "right" : "center";
      ctx.fillText(ago === 0 ? "now" : `−${ago} s`, ago === 0 ? width : x(now - ago * 1000), height);
    }

    ctx.setLineDash([2, 3]);
    for (const m of marks) {
      if (m.time < since) continue;
      ctx.strokeStyle = colour(m.bad ? "--bad" : "--good");
      ctx.beginPath();
      ctx.moveTo(x(m.time), TOP);
      ctx.lineTo(x(m.time), height - BOTTOM);
      ctx.stroke();
    }

    ctx.setLineDash([]);
    ctx.lineWidth = 1.75;
    ctx.lineJoin = "round";
    if (mirrored) all.reverse(); // so that a line without traffic does not hide the others
    for (const l of all) {
      ctx.strokeStyle = ctx.fillStyle = colour(`--line-${l.colour}`);
      const sign = l.below ? -1 : 1;
      let run = []; // points of a line without an interruption
      const stroke = () => {
        if (run.length === 0) return;
        ctx.beginPath();
        ctx.moveTo(x(run[0].ms) - 0.5, y(sign * run[0].to));
        for (const p of run) ctx.lineTo(x(p.ms), y(sign * p.to));
        ctx.stroke();
        if (mirrored) { // fill the area up to the line below
          for (const p of run.toReversed()) ctx.lineTo(x(p.ms), y(sign * p.from));
          ctx.globalAlpha = 0.25;
          ctx.fill();
          ctx.globalAlpha = 1;
        }
        run = [];
      };
      for (const p of l.points) {
        if (Number.isNaN(p.to) || p.ms - (run.at(-1)?.ms ?? p.ms) > GAP) stroke();
        if (!Number.isNaN(p.to)) run.push(p);
      }
      stroke();
    }
    ctx.lineWidth = 1;
    canvas.setAttribute("aria-label", this.words(history, lines));
  }

  // words returns a text that describes the last values of the graph.
  words(history, lines) {
    if (lines.length === 0) return "nothing to draw";
    return lines.map((l) => `${l.line.name}${l.below ? " out" : ""}: ${this.format(history.latest(l.line, l.metric))}`).join("; ");
  }
}
