// SPDX-License-Identifier: Apache-2.0

// What the scripts of kit.Browse share.
"use strict";

const assert = require("node:assert/strict");
const readline = require("node:readline");
const { chromium } = require("playwright-core");

const LIMIT = 30_000; // limit of each wait, in ms
const answers = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

// ask requests an action, by a line on standard output, and waits for the answer, which is a
// line on standard input.
async function ask(what) {
  console.log(what);
  const { value, done } = await answers.next();
  assert.ok(!done && value === "done", `${what}: ${value}`);
}

const step = (what) => console.error(`${new Date().toISOString().slice(11, 23)} ${what}`);

const says = (page, selector, pattern) => page.waitForFunction(
  ([where, what]) => [...document.querySelectorAll(where)].some((e) => new RegExp(what).test(e.textContent)), [selector, pattern.source]);

async function visit(address, viewport, parts, opened) {
  const browser = await chromium.launch({
    executablePath: "/usr/bin/chromium", timeout: LIMIT,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
      "--disable-background-networking", "--disable-component-update"],
  });
  const context = await browser.newContext({ viewport });
  context.setDefaultTimeout(LIMIT);
  const page = await context.newPage();
  const wrong = [];
  page.on("pageerror", (e) => wrong.push(`an error: ${e} ${e.stack}`));
  page.on("console", (m) => {
    if (["error", "warning"].includes(m.type())) wrong.push(`the console: ${m.text()}`);
  });
  opened(page, wrong);
  try {
    await page.goto(address);
    for (const part of parts) await part(page);
  } catch (e) {
    step(`the page says: ${await page.innerText("body", { timeout: 1000 }).catch((why) => why)}`);
    step(wrong.join("\n"));
    throw e;
  } finally {
    await browser.close();
  }
  assert.deepEqual(wrong, []);
}

// run opens a page, calls the parts of a test with it, and ends the process. The test fails
// if a part does, or if the page reports an error. opened is called before the first request.
function run(address, viewport, parts, opened = () => {}) {
  visit(address, viewport, parts, opened).then(() => process.exit(0), (e) => {
    console.error(e);
    process.exit(1);
  });
}

module.exports = { LIMIT, ask, run, says, step };
