// SPDX-License-Identifier: Apache-2.0

// Shows the last packets of a connection or subflow while the panel is open.

const MOST = 300; // lines kept

export class Packets {
  // panel is the section element. Its parts are found by their classes.
  constructor(panel) {
    const part = (name) => panel.querySelector(`.${name}`);
    this.panel = panel;
    this.title = part("title");
    this.count = part("count");
    this.list = part("lines");
    this.toggle = part("toggle");
    this.save = part("save");
    this.toggle.addEventListener("click", () => (this.stream ? this.stop("stopped") : this.start()));
    part("close").addEventListener("click", () => this.close());
  }

  // open shows the packets of flows ({local, remote}) of an instance.
  open(instance, title, flows) {
    this.title.textContent = title;
    this.query = new URLSearchParams([["instance", instance], ...flows.map((f) => ["flow", `${f.local},${f.remote}`])]);
    this.list.replaceChildren();
    this.save.hidden = true;
    this.panel.hidden = false;
    this.start();
    this.toggle.focus();
  }

  close() {
    this.stop("");
    this.panel.hidden = true;
  }

  start() {
    this.stop("");
    this.list.replaceChildren();
    this.say("waiting for packets");
    this.toggle.textContent = "Stop";
    this.stream = new EventSource(`api/packets?${this.query}`);
    this.stream.addEventListener("view", (e) => {
      this.save.href = `api/packets.pcapng?view=${JSON.parse(e.data).id}`;
    });
    this.stream.addEventListener("packets", (e) => this.take(JSON.parse(e.data)));
    this.stream.addEventListener("ended", (e) => this.stop(JSON.parse(e.data).reason));
    // Do not let the browser retry, because that would start another capture. The
    // user can do so.
    this.stream.addEventListener("error", () => this.stop("the capture failed or was interrupted"));
  }

  stop(why) {
    this.stream?.close();
    this.stream = null;
    this.toggle.textContent = "Start";
    if (why) this.say(`${this.counted ?? ""}${why}`);
    this.counted = "";
  }

  say(text) {
    this.count.textContent = text;
  }

  take({ packets, seen, dropped }) {
    const { list } = this;
    const following = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
    for (const p of packets) {
      const li = document.createElement("li");
      const clock = new Date(p.time).toTimeString().slice(0, 8) + p.time.slice(19, 26).replace(/Z$/, "");
      li.textContent = `${clock} ${p.iface} ${(p.dir ?? "").padEnd(3)} ${p.text}${p.comment ? `  [${p.comment}]` : ""}`;
      list.append(li);
    }
    while (list.children.length > MOST) list.firstElementChild.remove();
    if (following) list.scrollTop = list.scrollHeight;
    this.save.hidden = false;
    this.counted = `${seen} captured${dropped ? `, ${dropped} dropped` : ""}, `;
    this.say(`${this.counted}the last ${list.children.length} are shown`);
  }
}
