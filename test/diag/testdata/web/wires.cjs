// SPDX-License-Identifier: Apache-2.0

// Checks the picture of all instances in a browser. test/diag/web_test.go starts the
// instances and carries out the action that this script requests. Arguments: the page's
// address, the name of the lab, and a folder for a picture or "".
"use strict";

const assert = require("node:assert/strict");
const { ask, run } = require("browser.cjs");

const [address, lab, files] = process.argv.slice(2);

// carries waits for the rates of a wire.
const carries = (page, wire, pattern) => page.waitForFunction(([name, text]) => {
  return [...document.querySelectorAll(`#picture .wire[data-wire='${name}'] .rates`)].some((e) => new RegExp(text).test(e.textContent));
}, [`${lab}.${wire}`, pattern.source]);

const counts = (page, nodes, wires, hubs) => page.waitForFunction(([n, w, h]) => {
  const count = (selector) => document.querySelectorAll(`#picture ${selector}`).length;
  return count(".node") === n && count(".wire") === w && count(".hub") === h;
}, [nodes, wires, hubs]);

async function wires(page) {
  await counts(page, 3, 5, 1); // the wire lan is a switch with three ends
  // The client sends: the larger number is in its direction, on both paths.
  await carries(page, "a", /[1-9]\d*M/);
  await carries(page, "b", /[1-9]\d*M/);
  await page.waitForFunction((name) => /, out [1-9].* [MG]bit/.test(document.querySelector(`#picture .node[data-node='${name}']`).getAttribute("aria-label")), `${lab}.client`);
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
}

run(address, { width: 1200, height: 560 }, [wires]);
