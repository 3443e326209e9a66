// SPDX-License-Identifier: Apache-2.0

// Checks the picture of all instances in a browser. test/diag/web_wire_test.go starts the
// instances and carries out the action that this script requests. Arguments: the page's
// address, the name of the lab, and a folder for a picture or "".
"use strict";

const assert = require("node:assert/strict");
const readline = require("node:readline");
const { chromium } = require("playwright-core");

const LIMIT = 30_000; // limit of each wait, in ms
const [address, lab, files] = process.argv.slice(2);
const answers = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function ask(what) {
  console.log(what);
  const { value, done } = await answers.next();
  assert.ok(!done && value === "done", `${what}: ${value}`);
}

// carries waits for the rates of a wire.
const carries = (page, wire, pattern) => page.waitForFunction(([name, text]) => {
  return [...document.querySelectorAll(`#picture .wire[data-wire='${name}'] .rates`)].some((e) => new RegExp(text).test(e.textContent));
}, [`${lab}.${wire}`, pattern.source]);

const counts = (page, nodes, wires, hubs) => page.waitForFunction(([n, w, h]) => {
  const count = (selector) => document.querySelectorAll(`#picture ${selector}`).length;
  return count(".node") === n && count(".wire") === w && count(".hub") === h;
}, [nodes, wires, hubs]);

async function main() {
  const browser = await chromium.launch({
    executablePath: "/usr/bin/chromium", timeout: LIMIT,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
      "--disable-background-networking", "--disable-component-update"],
  });
  const page = await (await browser.newContext({ viewport: { width: 1200, height: 560 } })).newPage();
  page.setDefaultTimeout(LIMIT);
  const wrong = [];
  page.on("pageerror", (e) => wrong.push(`an error: ${e}`));
  page.on("console", (m) => {
    if (["error", "warning"].includes(m.type())) wrong.push(`the console: ${m.text()}`);
  });
  try {
    await page.goto(address);
    await counts(page, 3, 5, 1); // the wire lan is a switch with three ends
    // The client sends: the larger number is in its direction, on both paths.
    await carries(page, "a", /[1-9]\d*M/);
    await carries(page, "b", /[1-9]\d*M/);
    await page.waitForFunction((name) => /, out [1-9].* Mbit/.test(document.querySelector(`#picture .node[data-node='${name}']`).getAttribute("aria-label")), `${lab}.client`);
    await ask("end observer");
    await counts(page, 2, 3, 0);
    if (files) { // for the documentation, at full speed
      await page.waitForTimeout(8000);
      await page.mouse.move(0, 0);
      await page.screenshot({ path: `${files}/lab.png`, clip: { x: 0, y: 0, width: 1200, height: 400 } });
    }
    await page.click(`#picture .node[data-node='${lab}.client'] .name`);
    await page.waitForFunction(() => document.querySelectorAll("#connections tr.subflow").length >= 2);
    assert.equal(await page.inputValue("#instance"), `${lab}.client`);
  } catch (e) {
    console.error(`the page says: ${await page.innerText("body", { timeout: 1000 }).catch((why) => why)}`);
    throw e;
  } finally {
    await browser.close();
  }
  assert.deepEqual(wrong, []);
}

main().then(() => process.exit(0), (e) => {
  console.error(e);
  process.exit(1);
});
