# SPDX-License-Identifier: Apache-2.0
#
# Fetches ten times at once. Argument: the server.

import asyncio, sys
async def fetch():
    r, w = await asyncio.open_connection(sys.argv[1], 80)
    w.write(b"GET /hello HTTP/1.0\r\n\r\n")
    data = await r.read()
    w.close()
    await w.wait_closed()
    return data.endswith(b"hello\n")
async def main():
    print(await asyncio.gather(*[fetch() for _ in range(10)]))
asyncio.run(asyncio.wait_for(main(), 20))
