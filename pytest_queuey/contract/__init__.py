"""The contract of a backend, as tests: what they must all do, and what the one on RabbitMQ does beyond that.

Run them on a backend of your own by a subclass whose fixtures make it:

    class TestMyBackend(BackendContract):
        @pytest.fixture
        def backend_factory(self): ...   # a callable that returns a new, connected backend; close them afterwards

By default everything happens on `queuey_broker`. A backend that keeps its jobs elsewhere also overrides `clock` (with
`now_ms` and `advance`), `queue_name` and `dead_letters`; they are described in `surroundings`. Each chapter is a class
in a module of its own, and can be run by itself.
"""

from pytest_queuey.contract.closing import Closing
from pytest_queuey.contract.consuming import Consuming, ConsumingSeveralQueues
from pytest_queuey.contract.dead_lettering import DeadLettering
from pytest_queuey.contract.dead_queues import DeadQueues
from pytest_queuey.contract.declaring import Declaring
from pytest_queuey.contract.delaying import Delaying
from pytest_queuey.contract.faults import LostConnections, RefusedPublishes, RestartedBrokers
from pytest_queuey.contract.handing_over import HandingOver
from pytest_queuey.contract.hold_queues import HoldQueues
from pytest_queuey.contract.lost_consumers import LostConsumers
from pytest_queuey.contract.malformed_bodies import MalformedBodies
from pytest_queuey.contract.messages_on_the_broker import MessagesOnTheBroker
from pytest_queuey.contract.priorities import Priorities
from pytest_queuey.contract.publishing import Publishing
from pytest_queuey.contract.queues_on_the_broker import QueuesOnTheBroker
from pytest_queuey.contract.refusals import Refusals
from pytest_queuey.contract.retry_queue import RetryQueue
from pytest_queuey.contract.settling import Settling
from pytest_queuey.contract.silent_brokers import SilentBrokers
from pytest_queuey.contract.surroundings import DeadLetter, MakeBackend, Surroundings, TakeDeadLetters
from pytest_queuey.contract.threads import Threads

__all__ = [
    "BackendContract",
    "DeadLetter",
    "MakeBackend",
    "RabbitMqContract",
    "Surroundings",
    "TakeDeadLetters",
]


class BackendContract(
    Declaring,
    Publishing,
    Consuming,
    ConsumingSeveralQueues,
    Settling,
    Delaying,
    Priorities,
    DeadLettering,
    HandingOver,
    Closing,
    Threads,
):
    """What every backend does, in terms of jobs alone."""


class RabbitMqContract(
    BackendContract,
    Refusals,
    QueuesOnTheBroker,
    MessagesOnTheBroker,
    HoldQueues,
    DeadQueues,
    MalformedBodies,
    RetryQueue,
    LostConsumers,
    LostConnections,
    SilentBrokers,
    RefusedPublishes,
    RestartedBrokers,
):
    """What a backend on RabbitMQ does beyond that, in terms of queues, messages and the broker's own words."""
