// SPDX-License-Identifier: Apache-2.0
//
// HTTP, net and dgram servers in two workers.

const http = require("http"), net = require("net"), dgram = require("dgram"), cluster = require("cluster");
if (cluster.isPrimary) { // two workers share the listeners
	for (let i = 0; i < 2; i++) cluster.fork();
	process.on("SIGTERM", () => process.exit(0));
} else {
	net.createServer({ allowHalfOpen: true }, s => s.pipe(s)).listen(7001);
	const u = dgram.createSocket("udp4");
	u.on("message", (m, from) => u.send(m.toString().toUpperCase(), from.port, from.address));
	u.bind(7002);
	http.createServer((q, r) => {
		let n = 0;
		q.on("data", d => n += d.length);
		q.on("end", () => r.end(q.method + " " + q.url + " " + n));
	}).listen(7000);
}
