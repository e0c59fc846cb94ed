"""Client libraries as they are, against the fake's port. What is not installed is skipped: `tox -e clients` has it all.

Libraries wait in real time, so the broker lives by the machine's clock here, and what is waited for is short.
"""

from collections.abc import Iterator
from contextlib import closing

import pytest

from queuey_fake import FakeBroker
from queuey_fake.clock import SystemClock

DEAD_LETTERED = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with closing(FakeBroker(clock=SystemClock())) as broker:
        yield broker


@pytest.fixture
def dead_lettered() -> dict[str, str]:
    """The arguments of a queue whose rejected messages go to the queue `dead`."""
    return DEAD_LETTERED
