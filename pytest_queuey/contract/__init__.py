"""The contract of a backend, as tests: what they must all do, and what the one on RabbitMQ does beyond that.

A backend of your own keeps it when these pass. Say where its jobs are in a test and what it can do, once:

    class MyBackendUnderTest(BackendUnderTest):
        capabilities = {"holds", "dead_letters"}  # `capabilities` has all; what needs others is left out, and reported
        def __init__(self, folder): ...           # made for each test, with an empty folder
        def backend(self): ...                    # a new, connected backend
        def dead_letters(self, queue): ...
        def close(self): ...

and run it with `pytest --pyargs pytest_queuey.test_contract --queuey-backend=mypackage.testing:MyBackendUnderTest`, or
in a suite of your own:

    class TestMyBackend(BackendContract):
        @pytest.fixture
        def backend_under_test(self, tmp_path): ...  # yields one and closes it

Each chapter is a class in a module of its own, and can be run by itself. `examples/sqlite_backend` in the repository
is a whole backend with its tests.
"""

from pytest_queuey.contract.backend_under_test import BackendUnderTest, DeadLetter
from pytest_queuey.contract.capabilities import needs
from pytest_queuey.contract.carrying_headers import CarryingHeaders
from pytest_queuey.contract.closing import Closing
from pytest_queuey.contract.consuming import Consuming, ConsumingSeveralQueues
from pytest_queuey.contract.dead_lettering import DeadLettering
from pytest_queuey.contract.dead_queues import DeadQueues
from pytest_queuey.contract.declaring import Declaring
from pytest_queuey.contract.delaying import Delaying
from pytest_queuey.contract.failed_publishes import FailedPublishes
from pytest_queuey.contract.faults import LostConnections, RefusedPublishes, RestartedBrokers
from pytest_queuey.contract.foreign_bodies import ForeignBodies
from pytest_queuey.contract.handing_over import HandingOver
from pytest_queuey.contract.hold_queues import HoldQueues
from pytest_queuey.contract.lost_consumers import LostConsumers
from pytest_queuey.contract.malformed_bodies import MalformedBodies
from pytest_queuey.contract.messages_on_the_broker import MessagesOnTheBroker
from pytest_queuey.contract.priorities import Priorities
from pytest_queuey.contract.publishing import Publishing
from pytest_queuey.contract.queues_on_the_broker import QueuesOnTheBroker
from pytest_queuey.contract.quorum_queues import QuorumQueues
from pytest_queuey.contract.reconnecting import Reconnecting
from pytest_queuey.contract.refusals import Refusals
from pytest_queuey.contract.retry_queue import RetryQueue
from pytest_queuey.contract.settling import Settling
from pytest_queuey.contract.silent_brokers import SilentBrokers
from pytest_queuey.contract.surroundings import MakeBackend, Surroundings, TakeDeadLetters
from pytest_queuey.contract.threads import Threads

__all__ = [
    "BackendContract",
    "BackendUnderTest",
    "DeadLetter",
    "MakeBackend",
    "RabbitMqContract",
    "Surroundings",
    "TakeDeadLetters",
    "needs",
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
    ForeignBodies,
    CarryingHeaders,
    FailedPublishes,
    Reconnecting,
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
    QuorumQueues,
    LostConsumers,
    LostConnections,
    SilentBrokers,
    RefusedPublishes,
    RestartedBrokers,
):
    """What a backend on RabbitMQ does beyond that, in terms of queues, messages and the broker's own words."""
