// SPDX-License-Identifier: Apache-2.0
//
// Uses node_server.js. Argument: its address.

const net = require("net"), dgram = require("dgram"), addr = process.argv[2];
const get = async i => (await (await fetch("http://" + addr + ":7000/" + i)).text()) === "GET /" + i + " 0";
const echo = () => new Promise((ok, bad) => {
	const data = Buffer.alloc(1 << 20, "x"), s = net.connect(7001, addr);
	let n = 0;
	s.on("data", d => n += d.length);
	s.on("end", () => ok(n === data.length));
	s.on("error", bad);
	s.end(data);
});
const ask = () => new Promise(ok => {
	const u = dgram.createSocket("udp4");
	u.on("message", m => { u.close(); ok(m.toString() === "ASKED"); });
	u.send("asked", 7002, addr);
});
(async () => {
	const count = a => a.filter(x => x).length;
	const gets = await Promise.all([...Array(100).keys()].map(get));
	const post = await (await fetch("http://" + addr + ":7000/p", { method: "POST", body: "y".repeat(3000000) })).text();
	const echoes = await Promise.all([...Array(20)].map(echo));
	console.log(count(gets), post, count(echoes), await ask());
	process.exit(0); // fetch keeps connections open
})();
