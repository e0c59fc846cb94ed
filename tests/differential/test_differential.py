"""The differential machine: random steps on a live RabbitMQ and on the fake of that version, and no answer may differ.

    tox -e differential -- --queuey-rabbitmq-url=amqp://...          or what else the plugin takes for a real broker
    QUEUEY_DIFFERENTIAL_SECONDS=120 QUEUEY_DIFFERENTIAL_STEPS=20000 QUEUEY_DIFFERENTIAL_SEED=1 tox -e differential

It goes on until so many seconds have passed or so many steps were compared, whichever is first; 20 seconds where
nothing is said. The seed is printed; the same seed plays the same runs. A divergence is shrunk, and printed as a line
that can be added to tests/recorded.
"""

import itertools
import os
import random
import time

import pika
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from pytest_queuey.real_broker import ReadyBroker
from queuey_fake import FakeBroker
from queuey_fake.model.versions import VERSIONS
from tests.differential.messages import Messages, machine
from tests.differential.side_by_side import Comparison, LiveRabbitMq
from tests.differential.topology import Topology

SECONDS = float(os.environ.get("QUEUEY_DIFFERENTIAL_SECONDS", "20"))
STEPS = int(os.environ.get("QUEUEY_DIFFERENTIAL_STEPS", "1000000"))
SEED = int(os.environ.get("QUEUEY_DIFFERENTIAL_SEED") or random.SystemRandom().randrange(1_000_000))
RUNS_BETWEEN_LOOKS = 10
STEPS_IN_A_RUN = 30


def version_of(url: str) -> str:
    """Return which fake is that broker's: by the release in its server properties."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    release: str = connection._impl.server_properties["version"]
    connection.close()
    name = release.rpartition(".")[0]
    assert name in VERSIONS, f"there is no fake of RabbitMQ {release}; there is one of {', '.join(VERSIONS)}"
    return name


@pytest.mark.rabbitmq
def test_the_fake_answers_random_steps_as_rabbitmq_does(
    queuey_rabbitmq_server: ReadyBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    url = queuey_rabbitmq_server.server.url
    version = version_of(url)
    # Debian's RabbitMQ 4.3 permits what RabbitMQ itself denies from that version on.
    comparison = Comparison(LiveRabbitMq(url), lambda: FakeBroker(version, permit={"transient_nonexcl_queues"}))
    ends = time.monotonic() + SECONDS
    following = SEED
    machines = itertools.cycle((Messages, Messages, Topology))
    try:
        while time.monotonic() < ends and comparison.steps < STEPS:
            run_state_machine_as_test(
                seed(following)(machine(next(machines), comparison)),
                settings=settings(
                    max_examples=RUNS_BETWEEN_LOOKS,
                    stateful_step_count=STEPS_IN_A_RUN,
                    deadline=None,
                    database=None,
                    derandomize=False,
                    suppress_health_check=list(HealthCheck),
                    phases=[Phase.generate, Phase.shrink],
                    print_blob=False,
                ),
            )
            following += 1
    finally:
        with capsys.disabled():
            print(f"\nRabbitMQ {version}, seed {SEED} to {following}: {comparison}")  # noqa: T201  for whoever runs it
    assert comparison.steps > 0
