# SPDX-License-Identifier: Apache-2.0
#
# TCP, TLS and UDP by asyncio. Arguments: the certificate and its key.

import asyncio, hashlib, ssl, sys
async def digest(r, w):
    w.write(hashlib.sha256(await r.read()).hexdigest().encode())
    w.close()
async def line(r, w):
    w.write(await r.readline())
    await w.drain()
    w.close()
class Upper(asyncio.DatagramProtocol):
    def connection_made(self, t): self.t = t
    def datagram_received(self, d, a): self.t.sendto(d.upper(), a)
async def main():
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(sys.argv[1], sys.argv[2])
    await asyncio.start_server(line, None, 7001, ssl=tls)
    await asyncio.get_running_loop().create_datagram_endpoint(Upper, ("0.0.0.0", 7002))
    await (await asyncio.start_server(digest, None, 7000, backlog=256)).serve_forever()
asyncio.run(main())
