// SPDX-License-Identifier: Apache-2.0

// Checks the page of lklctl web in a browser, with the scenes of browser_test.go, which
// this script requests. Arguments: the page's address, a folder for screenshots or "".
"use strict";

const assert = require("node:assert/strict");
const { ask, run, says, step } = require("browser.cjs");

const [address, files] = process.argv.slice(2);

// shoot saves the page in both colour schemes and widths, if a folder is given. In each
// of them, the page must not be wider than the window.
async function shoot(page, name) {
  for (const width of [1280, 400]) {
    await page.setViewportSize({ width, height: 800 });
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
      const wide = await page.evaluate(() => document.scrollingElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${name} at ${width}: ${wide} pixels too wide`);
      if (files) await page.screenshot({ path: `${files}/${name}-${width}-${colorScheme}.png`, fullPage: true });
    }
  }
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 1280, height: 800 });
}

// overlaps returns the pairs of boxes that overlap, and the texts that leave their box.
const overlaps = (page) => page.evaluate(() => {
  const bad = [];
  const boxes = [...document.querySelectorAll("#picture .node rect, #picture .hub rect")].map((e) => e.getBoundingClientRect());
  boxes.forEach((a, n) => {
    for (const b of boxes.slice(0, n)) {
      if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom) bad.push(`boxes ${n}`);
    }
  });
  for (const node of document.querySelectorAll("#picture .node")) {
    const r = node.querySelector("rect").getBoundingClientRect();
    for (const t of node.querySelectorAll("text")) {
      const b = t.getBoundingClientRect();
      if (t.textContent && (b.right > r.right || b.left < r.left || b.bottom > r.bottom)) bad.push(`text ${t.textContent} of ${node.dataset.node}`);
    }
  }
  // Labels must not cover boxes or each other.
  const labels = [...document.querySelectorAll("#picture .wire .rates")].map((e) => [e.textContent, e.getBoundingClientRect()]);
  labels.forEach(([text, a], n) => {
    const hits = (b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
    for (const [other, b] of labels.slice(0, n)) if (hits(b)) bad.push(`labels ${text} and ${other}`);
    boxes.forEach((b, k) => { if (hits(b)) bad.push(`label ${text} and box ${k}`); });
  });
  return bad;
});

// pictured waits for a scene with a number of instances and wires, and checks it.
async function pictured(page, name, nodes, lines) {
  step(name);
  await ask(name);
  await page.waitForFunction(([n, w]) => document.querySelectorAll("#picture .node").length === n &&
    document.querySelectorAll("#picture .wire").length === w, [nodes, lines]);
  for (const width of [1280, 400]) {
    await page.setViewportSize({ width, height: 800 });
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    assert.deepEqual(await overlaps(page), [], `${name} at ${width}`);
  }
  await shoot(page, name);
}

async function empty(page) {
  step("nothing runs");
  await page.waitForSelector("#empty", { state: "visible" });
  await says(page, "#empty code", /^lklrun -- bash$/);
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.locator("#empty button").first().click();
  await says(page, "#empty button", /^Copied$/);
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "lklrun -- bash");
  await shoot(page, "nothing");
}

async function pictures(page) {
  await pictured(page, "two", 2, 2);
  assert.equal(await page.isVisible("#empty"), false);
  await says(page, "#picture .wire[data-wire='demo.a'] .rates", /→1.1M ←93M/);
  await says(page, "#picture .lab", /^lab demo$/);
  await says(page, "#instances tr[data-key='demo.client']", /141 Mbit\/s.*1.80 Mbit\/s/);
  await pictured(page, "chain", 5, 4);
  await pictured(page, "star", 9, 8);
  await pictured(page, "mixture", 11, 8);
  await says(page, "#picture .wire.down .rates", /^down$/);
  await says(page, "#picture .node[data-node=broken]", /does not answer/);
  await says(page, "#picture .node[data-node='mesh.server']", /no peer/);
}

async function one(page) {
  step("one instance");
  await ask("busy");
  await page.locator("#picture .node[data-node=load]").click();
  await says(page, "#status", /^live$/);
  assert.ok((await page.evaluate(() => location.hash)) === "#load");
  await says(page, "#links tr[data-key=eth0]", /eth0user.*Mbit\/s/);
  await says(page, "#totals", /New connections \/ s812/);
  await page.waitForFunction(() => document.querySelectorAll("#diagnosis li").length === 2);
  await says(page, "#diagnosis li[data-code=gateway]", /12 connections: plain TCP.*lklrun's gateway.*Remedy: remove --if user/);
  await says(page, "#diagnosis li[data-iface=eth1]", /2 connections: no subflow on eth1/);
  await page.locator("#diagnosis li[data-code=gateway] summary").click();
  await page.locator("#diagnosis li[data-code=gateway] details button").nth(2).click();
  await says(page, "#scope", /10\.9\.0\.1:40002/);
  await page.click("#all");
  // Interfaces are above connections, and their graph shows both directions.
  const tops = await page.evaluate(() => ["graph-links", "links", "diagnosis", "graph-rate", "connections"].map((id) => document.getElementById(id).getBoundingClientRect().top));
  assert.deepEqual(tops, [...tops].sort((a, b) => a - b));
  await page.waitForFunction(() => /eth0: .*bit.*eth0 out: .*bit/.test(document.getElementById("graph-links").ariaLabel));
  await page.waitForTimeout(files ? 8000 : 500);
  await shoot(page, "busy");
  step("back");
  await page.goBack();
  await page.waitForSelector("#overview", { state: "visible" });
  await page.selectOption("#instance", "load");
  await says(page, "#status", /^live$/);
  await page.click("#home");
  await ask("nothing");
  await page.waitForSelector("#empty", { state: "visible" });
}

run(address, { width: 1280, height: 800 }, [empty, pictures, one]);
