// SPDX-License-Identifier: Apache-2.0

// Formats numbers for people. Values that the stack does not report are shown as a
// dash.

export const ABSENT = "–";

// unit formats a number with a decimal prefix and about three digits.
function unit(n, name) {
  for (const prefix of ["", "k", "M", "G"]) {
    if (n < 999.5 || prefix === "G") {
      const digits = prefix === "" || n >= 99.95 ? 0 : n >= 9.995 ? 1 : 2;
      return `${n.toFixed(digits)} ${prefix}${name}`;
    }
    n /= 1000;
  }
}

const known = (n) => n !== undefined && n !== null && !Number.isNaN(n);

export const rate = (n) => (known(n) ? unit(n, "bit/s") : ABSENT);
export const bytes = (n) => (known(n) ? unit(n, "B") : ABSENT);
export const count = (n) => (known(n) ? String(Math.round(n)) : ABSENT);
export const perSecond = (n) => (known(n) ? n.toFixed(n > 0 && n < 10 ? 1 : 0) : ABSENT);
export const percent = (n) => (known(n) ? `${n.toFixed(n < 10 ? 1 : 0)} %` : ABSENT);

// micros formats microseconds as milliseconds.
export function micros(n) {
  if (!known(n)) return ABSENT;
  const ms = n / 1000;
  return `${ms.toFixed(ms < 10 ? 2 : ms < 100 ? 1 : 0)} ms`;
}

export const clock = (ms) => new Date(ms).toTimeString().slice(0, 8);

// short formats a rate for a picture, whose caption names the unit.
export function short(n) {
  if (!known(n)) return ABSENT;
  for (const prefix of ["", "k", "M", "G"]) {
    if (n < 999.5 || prefix === "G") return `${n < 9.95 ? Number(n.toFixed(1)) : Math.round(n)}${prefix}`;
    n /= 1000;
  }
}

// duration formats milliseconds with one or two units.
export function duration(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} days`;
}
