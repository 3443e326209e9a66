# SPDX-License-Identifier: Apache-2.0
#
# Makes 400 connections at the same moment, eight times. Argument: the server.

import asyncio, sys
async def main():
    for _ in range(8):
        calls = [asyncio.wait_for(asyncio.open_connection(sys.argv[1], 80), 10) for _ in range(400)]
        got = await asyncio.gather(*calls, return_exceptions=True)
        print(sum(isinstance(g, tuple) for g in got))
        for g in got:
            if isinstance(g, tuple):
                g[1].close()
asyncio.run(main())
