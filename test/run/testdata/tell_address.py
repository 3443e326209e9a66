# SPDX-License-Identifier: Apache-2.0
#
# A web server with asyncio that tells each client the client's address.

import asyncio
async def serve(r, w):
    data = await r.readuntil(b"\r\n\r\n")
    w.write(b"HTTP/1.0 200 OK\r\n\r\nyou are " + w.get_extra_info("peername")[0].encode())
    await w.drain()
    w.close()
async def main():
    s = await asyncio.start_server(serve, None, 80)
    async with s:
        await s.serve_forever()
asyncio.run(main())
