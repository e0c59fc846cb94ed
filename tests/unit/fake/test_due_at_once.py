"""What is due at the instant at which it was set happens without time having to pass."""

from datetime import UTC, datetime

from queuey_fake import ManualClock
from queuey_fake.engine import Engine
from queuey_fake.model.broker import Broker


def test_a_timer_that_is_due_already_fires_with_the_next_use_of_the_broker() -> None:
    clock = ManualClock(datetime(2030, 1, 1, tzinfo=UTC))
    engine = Engine(Broker(now_ms=clock.now_ms()), clock)
    fired: list[int] = []
    timers = engine.model.timers
    engine.run(lambda: timers.set(timers.now_ms, lambda: fired.append(timers.now_ms)))
    engine.run(lambda: None)
    assert fired == [clock.now_ms()]
    clock.advance(0)  # and moving by nothing comes to an end
    assert clock.now_ms() == fired[0]
