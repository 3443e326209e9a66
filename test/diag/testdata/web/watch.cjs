// SPDX-License-Identifier: Apache-2.0

// Checks the page of lklctl web in a browser. test/diag/web_test.go prepares the
// network and carries out the actions that this script requests. A request is one
// line on standard output, and its answer is one line on standard input.
// Arguments: the page's address, the instance, a folder for packets and a picture.
"use strict";

const assert = require("node:assert/strict");
const http = require("node:http");
const { LIMIT, ask, run, says, step } = require("browser.cjs");

const [address, instance, files] = process.argv.slice(2);
const base = new URL(address);

// status returns the HTTP status of a request.
function status(path, headers = {}) {
  return new Promise((resolve, reject) => {
    const options = { host: base.hostname, port: base.port, path, headers, timeout: LIMIT };
    http.get(options, (res) => resolve(res.resume().statusCode)).on("error", reject);
  });
}

async function refusals() {
  step("who does not know the token");
  assert.equal(await status("/"), 403);
  assert.equal(await status("/api/instances"), 403);
  assert.equal(await status(`/api/events?instance=${instance}`), 403);
  assert.equal(await status(base.pathname.toLowerCase()), 403);
  assert.equal(await status(base.pathname, { Host: "rebound.example" }), 403);
  assert.equal(await status(base.pathname), 200);
}

// opened records requests to other addresses.
function opened(page, wrong) {
  page.on("request", (r) => {
    if (!r.url().startsWith(`${base.origin}${base.pathname}`)) wrong.push(`a request for ${r.url()}`);
  });
}

// carrying waits until the page shows a rate for the transfer's subflow of an
// interface.
const carrying = (page, iface) => page.waitForFunction((dev) => {
  const row = document.querySelector(`tr.subflow[data-iface=${dev}]:not(.gone)`);
  return row && [2, 3].some((n) => /^[1-9].* [kM]bit\/s$/.test(row.children[n].textContent));
}, iface);

const gone = (page, iface) => page.waitForFunction((dev) => {
  return !document.querySelector(`tr.subflow[data-iface=${dev}]:not(.gone)`);
}, iface);

const drawn = (page, id) => page.waitForFunction((name) => {
  const canvas = document.getElementById(name);
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return /eth0/.test(canvas.ariaLabel) && data.some((byte) => byte);
}, id);

async function twoPaths(page) {
  step("two paths");
  await says(page, "#status", /^live$/);
  assert.equal(await page.inputValue("#instance"), instance);
  await Promise.all([carrying(page, "eth0"), carrying(page, "eth1")]);
  for (const id of ["graph-rate", "graph-rtt", "graph-cwnd", "graph-links"]) await drawn(page, id);
  await says(page, "#connections", /token [0-9a-f]{8} · 2 subflows/);
  await says(page, "#totals", /Subflows[1-9]/);
}

async function cut(page) {
  step("one path is cut");
  await ask("cut eth1");
  await gone(page, "eth1");
  await says(page, "#happened", /subflow eth1 10\.74\.2\.2\S* → \S+ .* is gone/);
  await says(page, "#happened", /interface eth1: no carrier/);
  await carrying(page, "eth0");
  await says(page, "#diagnosis li[data-iface=eth1]", /[1-9]\d* connections?: no subflow on eth1/);
  step("it is back");
  await ask("mend eth1");
  await Promise.all([carrying(page, "eth0"), carrying(page, "eth1")]);
  await says(page, "#happened", /subflow eth1 10\.74\.2\.2\S* → \S+ joined/);
}

// picture makes the picture for the documentation. With PICTURES, it first lets a
// minute pass in which one path is cut.
async function picture(page) {
  step("a picture");
  await page.locator("tr.connection:has(+ tr.subflow) th button:not(.packets)").first().click();
  await page.check("input[value='60']");
  if (process.env.PICTURES) {
    await page.waitForTimeout(15_000);
    await ask("cut eth1");
    await page.waitForTimeout(12_000);
    await ask("mend eth1");
    await page.waitForTimeout(25_000);
  }
  await page.screenshot({ path: `${files}/web.png` });
  await page.click("#all");
}

async function choice(page) {
  step("one subflow is chosen, by the keyboard");
  const button = page.locator("tr.subflow[data-iface=eth0]:not(.gone) th button:not(.packets)").first();
  await button.focus();
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelectorAll("#legend li").length === 1);
  assert.equal(await button.getAttribute("aria-pressed"), "true");
  await page.click("#all");
  await page.waitForFunction(() => document.querySelectorAll("#legend li").length > 1);
}

async function packets(page) {
  step("packets of a subflow");
  await page.locator("tr.subflow[data-iface=eth1]:not(.gone) button.packets").first().click();
  await says(page, "#packets .title", /10\.74\.2\.2:/);
  await says(page, "#packets .lines", /eth1 (In|Out) +(IP )?10\.74\.2\.[12].* Flags .*mptcp/);
  await says(page, "#packets .lines", /\[.*mptcp token [0-9a-f]{8}/);
  await page.click("#packets .toggle");
  await says(page, "#packets .count", /^[1-9]\d* captured, .*stopped$/);
  const [file] = await Promise.all([page.waitForEvent("download"), page.click("#packets .save")]);
  await file.saveAs(`${files}/web.pcapng`);
  await ask("tshark");
  await page.click("#packets .close");
  await page.waitForSelector("#packets", { state: "hidden" });
}

async function looks(page) {
  step("on a phone, and in the dark");
  const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await back();
  await page.emulateMedia({ colorScheme: "dark" });
  assert.notEqual(await back(), light);
  await page.setViewportSize({ width: 360, height: 640 });
  await page.waitForFunction(() => document.scrollingElement.scrollWidth <= innerWidth);
  await carrying(page, "eth0");
  await page.setViewportSize({ width: 1200, height: 800 });
}

async function end(page) {
  step("the instance ends");
  await ask("stop");
  await page.waitForSelector("#status[data-state=ended]");
  await says(page, "#status", new RegExp(instance));
  step("another one has its name");
  await ask("start");
  await says(page, "#status", /^live$/);
}

run(address, { width: 1200, height: 800 }, [refusals, twoPaths, cut, picture, choice, packets, looks, end], opened);
