// SPDX-License-Identifier: Apache-2.0

// Stores the data of the graphs: the times of the last SPAN snapshots, and SPAN numbers
// for each line. SPAN and MAX_LINES limit the memory, even if the page is open for a
// long time.

export const SPAN = 300;
const MAX_LINES = 256;

export class History {
  constructor() {
    this.ticks = 0; // snapshots so far
    this.times = new Float64Array(SPAN); // ms; tick n is at n % SPAN
    this.lines = new Map(); // maps a key to its line, {key, group, name, last, values: {metric: Float32Array}}
  }

  // begin starts a snapshot. If put does not set a value before the next begin, the
  // value is unknown.
  begin(ms) {
    this.at = this.ticks++ % SPAN;
    this.times[this.at] = ms;
    for (const line of this.lines.values()) {
      if (this.ticks - line.last > SPAN) {
        this.lines.delete(line.key);
        continue;
      }
      for (const values of Object.values(line.values)) values[this.at] = NaN;
    }
  }

  // put adds the numbers of one line to the snapshot.
  put(key, group, name, numbers) {
    let line = this.lines.get(key);
    if (!line) {
      if (this.lines.size >= MAX_LINES) return;
      line = { key, group, name, values: {} };
      for (const metric of Object.keys(numbers)) line.values[metric] = new Float32Array(SPAN).fill(NaN);
      this.lines.set(key, line);
    }
    line.last = this.ticks;
    for (const [metric, n] of Object.entries(numbers)) line.values[metric][this.at] = n ?? NaN;
  }

  // latest returns the number of a line in the newest snapshot.
  latest(line, metric) {
    return line.values[metric][this.at];
  }

  // recent returns the sum of the last numbers of a line. The page uses it to
  // choose lines.
  recent(line, metric, ticks) {
    let sum = 0;
    for (let n = Math.max(0, this.ticks - ticks); n < this.ticks; n++) sum += line.values[metric][n % SPAN] || 0;
    return sum;
  }

  // points calls visit(ms, number) for each value of a line since a time, the oldest
  // first.
  points(line, metric, since, visit) {
    for (let n = Math.max(0, this.ticks - SPAN); n < this.ticks; n++) {
      const ms = this.times[n % SPAN];
      if (ms >= since) visit(ms, line.values[metric][n % SPAN]);
    }
  }
}
