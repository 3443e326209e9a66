# SPDX-License-Identifier: Apache-2.0
#
# Uses asyncio_server.py. Arguments: its address and its certificate.

import asyncio, hashlib, os, ssl, sys
async def digest(i):
    r, w = await asyncio.open_connection(sys.argv[1], 7000)
    data = os.urandom(i * 1000)
    w.write(data)
    w.write_eof()
    got = await r.read()
    w.close()
    return got.decode() == hashlib.sha256(data).hexdigest()
async def line(i):
    r, w = await asyncio.open_connection(sys.argv[1], 7001, ssl=ssl.create_default_context(cafile=sys.argv[2]))
    w.write(b"%d\n" % i)
    got = await r.readline()
    w.close()
    return got == b"%d\n" % i
class Ask(asyncio.DatagramProtocol):
    def __init__(self): self.got, self.all = [], asyncio.get_running_loop().create_future()
    def datagram_received(self, d, a):
        self.got.append(d)
        if len(self.got) == 50: self.all.set_result(sorted(self.got))
async def main():
    sums = await asyncio.gather(*[digest(i) for i in range(200)])
    lines = await asyncio.gather(*[line(i) for i in range(50)])
    t, p = await asyncio.get_running_loop().create_datagram_endpoint(Ask, remote_addr=(sys.argv[1], 7002))
    for i in range(50): t.sendto(b"d%02d" % i)
    got = await p.all
    print(f"{sum(sums)} sums, {sum(lines)} lines by TLS, {sum(g == b'D%02d' % i for i, g in enumerate(got))} datagrams")
asyncio.run(asyncio.wait_for(main(), 25))
