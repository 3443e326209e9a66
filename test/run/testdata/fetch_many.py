# SPDX-License-Identifier: Apache-2.0
#
# Fetches 2,000 times, at most 200 at once. Argument: the server.

import asyncio, sys
async def fetch(sem):
    async with sem:
        r, w = await asyncio.open_connection(sys.argv[1], 80)
        w.write(b"GET /hello HTTP/1.0\r\n\r\n")
        d = await r.read()
        w.close()
        await w.wait_closed()
        return d.endswith(b"hello\n")
async def main():
    sem = asyncio.Semaphore(200)
    got = await asyncio.gather(*[fetch(sem) for _ in range(2000)])
    print(len(got), all(got))
asyncio.run(main())
