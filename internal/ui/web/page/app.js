// SPDX-License-Identifier: Apache-2.0

// The page receives one event stream: the overview of all instances, or the snapshots of
// the instance that the fragment of the address names.

import * as one from "./one.js";
import * as overview from "./overview.js";

const $ = (id) => document.getElementById(id);

let stream = null; // the EventSource
let wanted = ""; // name of the instance to show; empty: all
let instances = [];

function say(state, text) {
  const status = $("status");
  status.dataset.state = state;
  if (status.textContent !== text) status.textContent = text;
}

// view shows one part of the page: empty, overview or one.
function view(id) {
  for (const main of document.querySelectorAll("main")) main.hidden = main.id !== id;
}

// connect opens the event stream for the wanted instance, or for all.
function connect() {
  stream?.close();
  wanted = decodeURIComponent(location.hash.slice(1));
  one.reset(wanted);
  overview.begin(open);
  $("about").textContent = "";
  document.title = wanted ? `${wanted} – lklctl web` : "lklctl web";
  view(wanted ? "one" : "");
  say("connecting", "connecting");
  select();
  stream = new EventSource(`api/events?instance=${encodeURIComponent(wanted)}`);
  const on = (event, handle) => stream.addEventListener(event, (e) => handle(JSON.parse(e.data)));
  on("instances", list);
  on("overview", (data) => {
    view(overview.take(data) ? "overview" : "empty");
    say("live", data.instances.length ? "live" : "waiting for an instance");
  });
  on("snapshot", (data) => {
    one.take(data);
    say("live", "live");
  });
  on("ended", ended);
  stream.addEventListener("error", () => {
    // The browser reconnects by itself, unless the server has rejected the request.
    const over = stream.readyState === EventSource.CLOSED;
    say("lost", over ? "lklctl web refused this page; open the address that it printed" : "lklctl web does not answer; retrying");
  });
}

// open shows an instance; the name "" shows all.
function open(name) {
  location.hash = encodeURIComponent(name);
}

function list(all) {
  instances = all;
  select();
}

// select fills the list of instances.
function select() {
  const names = instances.map((i) => i.name);
  if (wanted && !names.includes(wanted)) names.unshift(wanted);
  $("instance").replaceChildren(new Option("all instances", "", false, !wanted), ...names.map((name) => {
    const there = instances.some((i) => i.name === name);
    return new Option(there ? name : `${name} (ended)`, name, false, name === wanted);
  }));
}

function ended({ instance, reason }) {
  if (!instance) {
    say("ended", `the instances are unknown: ${reason}`);
    return;
  }
  const other = instances.some((i) => i.name !== instance);
  say("ended", `${instance} has ended or does not answer: ${reason}. Waiting for it${other ? "; other instances are running" : ""}`);
  one.ended();
}

// Each command of the empty page has a button that copies it.
for (const command of document.querySelectorAll(".command")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  const code = command.querySelector("code");
  button.setAttribute("aria-label", `Copy ${code.textContent}`);
  button.addEventListener("click", async () => {
    getSelection().selectAllChildren(code); // for browsers that do not allow the copy
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Press Ctrl-C";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  command.append(button);
}

$("instance").addEventListener("change", (e) => open(e.target.value));
addEventListener("hashchange", connect);
connect();
