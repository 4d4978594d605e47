"""A TCP proxy between sites and their server that delays, breaks and redirects connections.

    python proxy.py LISTEN-ADDRESS PORT TARGET-ADDRESS

It reads commands from standard input: `delay SECONDS`, `drop` (all connections), `cut` (drop them
and accept none), `mend`, `target ADDRESS`. It ends with its input.
"""

import asyncio
import sys

MOST = 64  # connections at a time


class Proxy:
    def __init__(self, target, port):
        self.target = target
        self.port = port
        self.delay = 0.0
        self.is_cut = False
        self.writers = set()

    async def meet(self, reader, writer):
        if self.is_cut or len(self.writers) >= 2 * MOST:
            writer.close()
            return
        try:
            onward = await asyncio.wait_for(asyncio.open_connection(self.target, self.port), 5)
        except (TimeoutError, OSError):
            writer.close()
            return
        self.writers |= {writer, onward[1]}
        try:
            await asyncio.gather(self.pass_on(reader, onward[1]), self.pass_on(onward[0], writer))
        finally:
            self.writers -= {writer, onward[1]}

    async def pass_on(self, reader, writer):
        try:
            while data := await reader.read(1 << 16):
                if self.delay:
                    await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass  # the connection was broken, here or elsewhere
        finally:
            writer.close()

    def drop(self):
        for writer in list(self.writers):
            writer.transport.abort()

    def obey(self, line):
        word, *values = line.split()
        if word == "delay":
            self.delay = float(values[0])
        elif word == "target":
            self.target = values[0]
            self.drop()
        elif word in ("cut", "mend"):
            self.is_cut = word == "cut"
            self.drop()
        elif word == "drop":
            self.drop()
        print("done", line.strip(), flush=True)


async def main(listen, port, target):
    proxy = Proxy(target, int(port))
    await asyncio.start_server(proxy.meet, listen, int(port))
    print("listening", flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        proxy.obey(line)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
