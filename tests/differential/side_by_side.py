"""Two brokers side by side: each step is played on a live RabbitMQ and on the fake, and the answers must be the same.

Time. The fake follows the clock of the real broker: before each step it is moved to where the real one is. What
depends on time is kept clear of its boundaries: in a timed run, time is cut into slots of `SLOT_MS`; steps begin in
the first `WINDOW_MS` of a slot only, and every TTL and lease is so many whole slots and `TTL_PAST_SLOT_MS`, so that
whatever expires does so between the windows, also what was dead-lettered by an expiry to expire once more, and again.

Races that RabbitMQ does not decide. A step is over when every channel has answered a round trip and nothing more has
come for a while, so no two steps overlap. A real broker on a busy machine may still be late: what differs is played
again with more patience, and counts only if it differs again.
"""

import json
import secrets
import time
from collections.abc import Callable
from typing import Any, Protocol

from pika.exceptions import AMQPError, ChannelClosedByBroker, ConnectionClosedByBroker

from queuey_fake import FakeBroker
from tests.recorded.player import Player, Step, World
from tests.recorded.values import Values

SLOT_MS = 800
WINDOW_MS = 150
TTL_PAST_SLOT_MS = 200
PATIENCE_S = 0.008
MORE_PATIENCE_S = 0.05
QUORUM_PATIENCE_S = 0.03
"""The members of a quorum queue answer by themselves, after their log has."""


class Live(World, Protocol):
    """A broker on a port, whose clock can be read and waited for."""

    def now_ms(self) -> int: ...


class LiveRabbitMq:
    """A real broker: waiting for its clock takes as long as it says."""

    def __init__(self, url: str) -> None:
        self.url = url

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def advance(self, seconds: float) -> None:
        time.sleep(seconds)


class DivergenceError(AssertionError):
    """The fake answered a step otherwise than RabbitMQ, and did so again."""


class PatientPlayer(Player):
    """Plays steps, and waits after each until the broker has said all it has to say."""

    def __init__(self, world: World, prefix: str, *, patience_s: float) -> None:
        super().__init__(world, settle_ms=0)
        self.values = Values(prefix)
        self.patience_s = patience_s

    def pump(self) -> None:
        quiet_since = time.monotonic()
        known = -1
        while known < (said := sum(map(len, self.events.values()))) or time.monotonic() < quiet_since + self.patience_s:
            if said > known:
                quiet_since, known = time.monotonic(), said
            self.round_trips()
            super().pump()

    def round_trips(self) -> None:
        """Ask every channel something: what was on its way to a client before the answer is there with it."""
        for ref, channel in list(self.channels.items()):
            if channel.is_open and ref.split(":")[0] not in self.reported:
                try:
                    channel.exchange_declare(exchange="amq.direct", exchange_type="direct", passive=True)
                except ConnectionClosedByBroker as error:
                    name = ref.split(":")[0]
                    self.reported.add(name)
                    self.tell(name, {**self.values.error(error), "ev": "connection_closed"})
                except ChannelClosedByBroker:
                    pass  # it is told of when the channels are looked through

    def delete_everything(self, steps: list[Step]) -> None:
        """Delete what the steps may have left, and close all connections."""
        names = {step.get("queue", "") for step in steps} | {f"${name}" for name in self.values.made_up}
        exchanges = {step.get("exchange", "") for step in steps}
        for connection in self.connections.values():
            if connection.is_open:
                connection.close()
        connection = self.connection("cleaner")
        for kind, found in (("queue", names), ("exchange", exchanges)):
            for name in sorted(self.values.read(name) for name in found if name[:1] in ("@", "$")):
                try:
                    channel = connection.channel()
                    getattr(channel, f"{kind}_delete")(name)
                    channel.close()
                except AMQPError:
                    if connection.is_closed:  # as after an internal error of the broker
                        self.connections.pop("cleaner")
                        connection = self.connection("cleaner")
        connection.close()


class SideBySide:
    """One run: the same steps on both brokers, until they differ."""

    def __init__(self, live: Live, make_fake: Callable[[], FakeBroker], *, patience_s: float = PATIENCE_S) -> None:
        self.live = live
        self.make_fake = make_fake
        self.fake = make_fake()
        prefix = f"d{secrets.token_hex(4)}-"
        self.on_live = PatientPlayer(live, prefix, patience_s=patience_s)
        self.on_fake = PatientPlayer(self.fake, prefix, patience_s=0)
        self.is_timed = False
        self.transcript: list[Step] = []
        self.started_ms = live.now_ms()
        self.fake_started_ms = self.fake.now_ms()

    def step(self, **step: Any) -> Any:
        """Play a step and return its result; raises UnequalError where the brokers differ."""
        if self.is_timed and self.elapsed_ms() % SLOT_MS > WINDOW_MS:
            self.wait()
        self.follow()
        return self.compare(step)

    def wait(self, slots: int = 1) -> None:
        """Wait for the begin of a later slot, the next one unless more are asked for."""
        ms = slots * SLOT_MS - self.elapsed_ms() % SLOT_MS
        self.follow()
        self.compare({"op": "wait", "ms": ms})

    def compare(self, step: Step) -> Any:
        result, events = self.on_live.step(step)
        told = self.on_fake.step(step)
        self.transcript.append(step | {"result": result} | ({"events": events} if events else {}))
        if (result, events) != told:
            raise UnequalError(told[0], told[1])
        return result

    def elapsed_ms(self) -> int:
        return self.live.now_ms() - self.started_ms

    def follow(self) -> None:
        """Move the fake's time to where the live broker's is."""
        late_ms = self.elapsed_ms() - (self.fake.now_ms() - self.fake_started_ms)
        self.fake.advance(max(0, late_ms) / 1000)

    def differs_again(self) -> bool:
        """Play the same steps once more, with patience."""
        again = SideBySide(self.live, self.make_fake, patience_s=MORE_PATIENCE_S)
        again.is_timed = self.is_timed
        try:
            for recorded in self.transcript:
                step = {key: value for key, value in recorded.items() if key not in ("result", "events")}
                if step["op"] == "wait":
                    again.wait(-(-step["ms"] // SLOT_MS))
                else:
                    again.step(**step)
        except UnequalError:
            # More steps have been needed where slots were missed; the last operation is the same.
            return bool(again.transcript[-1]["op"] == self.transcript[-1]["op"])
        finally:
            again.close()
        return False

    def close(self) -> None:
        for player in (self.on_live, self.on_fake):
            player.delete_everything(self.transcript)
        self.fake.close()

    def as_transcript(self, name: str) -> str:
        """Return the run as a line for tests/recorded: what RabbitMQ answered."""
        found = {"name": name, "reason": "found by the differential machine", "steps": self.transcript}
        return json.dumps(found, separators=(",", ":"))

    def explain(self, unequal: "UnequalError") -> str:
        *_, last = self.transcript
        step = {key: value for key, value in last.items() if key not in ("result", "events")}
        name = f"differential_{last['op']}_{secrets.token_hex(3)}"
        return "\n".join(
            (
                f"the fake of RabbitMQ {self.fake.version} differs at step {len(self.transcript) - 1}:",
                f"  the step: {json.dumps(step)}",
                f"  RabbitMQ: {json.dumps([last['result'], last.get('events', {})])}",
                f"  the fake: {json.dumps([unequal.result, unequal.events])}",
                "the transcript, for tests/recorded:",
                self.as_transcript(name),
            )
        )


class UnequalError(Exception):
    """The brokers answered differently once: what the fake said."""

    def __init__(self, result: Any, events: dict[str, list[Any]]) -> None:
        super().__init__(result, events)
        self.result = result
        self.events = events


class Comparison:
    """All runs of a session: counts what was compared, and tells a divergence from a late broker."""

    def __init__(self, live: Live, make_fake: Callable[[], FakeBroker]) -> None:
        self.live = live
        self.make_fake = make_fake
        self.steps = 0
        self.runs = 0
        self.late = 0

    def run(self) -> SideBySide:
        self.runs += 1
        return SideBySide(self.live, self.make_fake)

    def __str__(self) -> str:
        return f"{self.steps} steps in {self.runs} runs compared; the broker was late {self.late} times"

    def settle(self, run: SideBySide, unequal: UnequalError) -> None:
        """Raise DivergenceError if the run differs once more; else it was the machine."""
        if run.differs_again():
            raise DivergenceError(run.explain(unequal)) from None
        self.late += 1
