"""A register on three hosts that agree by Raft, in a simulated world: hosts crash, and lines are cut.

``python examples/raft.py`` runs 50 seeds without a finding. With ``--bug`` no host syncs what it promises.
"""

import asyncio
import contextlib
import functools
import json
import os
import random
import sys

from whorl import sim

PORT = 7000
NAMES = ("a", "b", "c")
HEARTBEAT = 0.05  # seconds
PATIENCE = (0.2, 0.4)  # how long a follower waits for its leader
JOURNAL = "/srv/raft"


class Node:
    """One host's part. Terms, votes and entries are in its journal before it speaks of them."""

    def __init__(self, host, leaders, syncs):
        self.host = host
        self.name = host.name
        self.peers = [name for name in NAMES if name != host.name]
        self.leaders = leaders  # who led in which term: what the check looks at
        self.syncs = syncs
        self.term, self.vote = 0, None
        self.log = [[0, "noop", 0]]  # entries: term, operation, value
        self.role = "follower"
        self.committed = self.applied = 1  # how many entries are final, and how many took effect
        self.value = 0
        self.waiting = {}  # futures of clients, by term and place of their entries
        self.matched = {}  # how many entries each peer has

    def load(self):
        """Read the journal; what comes after a line that is torn was never promised."""
        if not self.host.disk.exists(JOURNAL):
            self.host.disk.write(JOURNAL, b"")
        self.journal = self.host.disk.open(JOURNAL, "r+b")
        good = 0
        for line in self.journal:
            try:
                record = json.loads(line)
            except ValueError:
                break
            good += len(line)
            if "term" in record:
                self.term, self.vote = record["term"], record["vote"]
            else:
                self.log[record["at"] :] = record["entries"]
        self.journal.seek(good)
        self.journal.truncate()

    def save(self, **record):
        """Add a line to the journal."""
        self.journal.write(json.dumps(record).encode() + b"\n")
        self.journal.flush()
        if self.syncs:
            os.fsync(self.journal.fileno())

    async def run(self):
        """Serve the others and the clients; call an election when the leader is silent."""
        self.load()
        self.heard = asyncio.get_running_loop().time()
        await asyncio.start_server(self.serve, self.host.address, PORT)
        while True:
            if self.role == "leader":
                await self.replicate()
                await asyncio.sleep(HEARTBEAT)
            else:
                patience = random.uniform(*PATIENCE)
                await asyncio.sleep(patience)
                if asyncio.get_running_loop().time() - self.heard > patience:
                    await self.campaign()

    def follow(self, term):
        """Be a follower, in this term."""
        if term > self.term:
            self.term, self.vote = term, None
            self.save(term=term, vote=None)
        self.role = "follower"

    async def campaign(self):
        """Ask for votes in a new term."""
        self.term, self.vote, self.role = self.term + 1, self.name, "candidate"
        self.save(term=self.term, vote=self.vote)
        term = self.term
        asked = {"kind": "vote", "term": term, "name": self.name, "last": [self.log[-1][0], len(self.log)]}
        answers = [each for each in await asyncio.gather(*(call(peer, asked) for peer in self.peers)) if each]
        for answer in answers:
            if answer["term"] > self.term:
                self.follow(answer["term"])
        votes = 1 + sum(answer["granted"] for answer in answers)
        if self.role == "candidate" and self.term == term and votes * 2 > len(NAMES):
            self.role = "leader"
            self.matched = dict.fromkeys(self.peers, 1)
            self.leaders.setdefault(term, set()).add(self.name)
            self.host.world.note("leads", host=self.name, term=term)
            self.append(["noop", 0])

    def append(self, command):
        """Add an entry as the leader; return its place."""
        place = len(self.log)
        self.log.append([self.term, *command])
        self.save(at=place, entries=self.log[place:])
        return place

    async def replicate(self):
        """Send each peer what it lacks, and count how many have which entry."""
        await asyncio.gather(*map(self.send_entries, self.peers))
        counts = sorted([len(self.log), *self.matched.values()])
        agreed = counts[len(counts) // 2]
        if self.role == "leader" and agreed > self.committed and self.log[agreed - 1][0] == self.term:
            self.commit(agreed)

    async def send_entries(self, peer):
        term, at = self.term, self.matched[peer]
        entries = self.log[at:]
        message = {"kind": "append", "term": term, "at": at, "before": self.log[at - 1][0]}
        answer = await call(peer, message | {"entries": entries, "committed": self.committed})
        if answer is None or self.role != "leader" or self.term != term:
            return
        if answer["term"] > term:
            self.follow(answer["term"])
        elif answer["ok"]:
            self.matched[peer] = at + len(entries)

    def commit(self, count):
        """Apply entries that are final, and answer their clients."""
        self.committed = max(self.committed, count)
        while self.applied < self.committed:
            term, operation, value = self.log[self.applied]
            if operation == "write":
                self.value = value
            waiter = self.waiting.pop((term, self.applied), None)
            if waiter is not None and not waiter.done():
                waiter.set_result(self.value if operation == "read" else None)
            self.applied += 1

    async def serve(self, reader, writer):
        with contextlib.closing(writer), contextlib.suppress(OSError, ValueError):  # The caller may be gone.
            message = json.loads(await reader.readline())
            answer = getattr(self, f"on_{message['kind']}")(message)
            if asyncio.isfuture(answer):
                answer = {"ok": True, "value": await answer}
            writer.write(json.dumps(answer).encode() + b"\n")

    def on_vote(self, message):
        if message["term"] > self.term:
            self.follow(message["term"])
        is_current = message["last"] >= [self.log[-1][0], len(self.log)]
        granted = is_current and message["term"] == self.term and self.vote in (None, message["name"])
        if granted:
            self.vote, self.heard = message["name"], asyncio.get_running_loop().time()
            self.save(term=self.term, vote=self.vote)
        return {"term": self.term, "granted": granted}

    def on_append(self, message):
        at, entries = message["at"], message["entries"]
        if message["term"] >= self.term:
            self.follow(message["term"])
            self.heard = asyncio.get_running_loop().time()
        is_known = at <= len(self.log) and self.log[at - 1][0] == message["before"]
        if message["term"] < self.term or not is_known:
            return {"term": self.term, "ok": False}
        if self.log[at : at + len(entries)] != entries:
            self.log[at:] = entries
            self.save(at=at, entries=entries)
        self.commit(min(message["committed"], at + len(entries)))
        return {"term": self.term, "ok": True}

    def on_command(self, message):
        if self.role != "leader":
            return {"ok": False}
        place = self.append(message["command"])
        waiter = self.waiting[self.term, place] = asyncio.get_running_loop().create_future()
        return waiter


async def call(name, message, patience=HEARTBEAT):
    """Send a message to a host; return its answer, None if there is none in time."""
    try:
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_connection(name, PORT)
            with contextlib.closing(writer):
                writer.write(json.dumps(message).encode() + b"\n")
                return json.loads(await reader.readline())
    except (OSError, ValueError):
        return None


# The world around it.


class Register:
    """A register whose operations happen one after another."""

    initial = 0

    def apply(self, state, operation, args):
        return (args[0], None) if operation == "write" else (state, state)


async def client(world, name):
    """Write and read, each time at any host."""
    for number in range(15):
        node = NAMES[world.choose(len(NAMES), f"{name}/host")]
        operation, value = ("write", f"{name}{number}") if world.choose(2, f"{name}/what") else ("read", 0)
        record = world.record(name, operation, (value,))
        answer = await call(node, {"kind": "command", "command": [operation, value]}, patience=0.5)
        if answer and answer["ok"]:
            record.done(answer["value"])
        elif answer:
            record.failed()  # It is no leader, and has done nothing.
        await asyncio.sleep(0.1)


async def trouble(world):
    """Crash a host or cut it off, now and then."""
    while True:
        await asyncio.sleep(0.3 + world.choose(8, "calm") / 10)
        host = world.host(NAMES[world.choose(len(NAMES), "victim")])
        if world.choose(3, "trouble"):
            host.crash()
            host.restart(after=0.1)
        else:
            cut = world.net.partition(host)
            await asyncio.sleep(0.5)
            cut.heal()


async def main(world, syncs=True):
    """Let three hosts and three clients live for a while, in trouble."""
    leaders = {}
    world.linearizable(Register())
    world.always("one leader in each term", lambda: all(len(names) < 2 for names in leaders.values()))
    for name in NAMES:
        world.host(name, boot=lambda host: Node(host, leaders, syncs).run())
    await asyncio.sleep(1)
    worry = asyncio.create_task(trouble(world))
    await asyncio.gather(*(client(world, name) for name in "xyz"))
    worry.cancel()


if __name__ == "__main__":
    program = functools.partial(main, syncs="--bug" not in sys.argv)
    for seed in range(50):
        result = sim.run(program, seed=seed)
        if result.failed:
            print(f"seed {seed}:", *result.story, *result.findings, sep="\n")
            break
    else:
        print("no finding")
