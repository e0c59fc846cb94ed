"""Owns the contract's chapter on what is lost or refused: connections, consumers, publishes, whole brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_queuey.contract.broker_door import BrokerDoor
from pytest_queuey.contract.surroundings import (
    ContractClock,
    MakeJob,
    in_thread,
    payloads,
    take,
    take_one,
    work_off,
)
from pytest_queuey.contract.with_faults import (
    DEADLINE,
    HURRIED,
    OUTAGE,
    OUTCOMES_THAT_PUBLISH,
    RESILIENT,
    Settle,
    WithFaults,
    ending_in_time,
    error_of,
    ready,
)
from queuey_rabbitmq.amqp import Properties
from queuey_rabbitmq.core.errors import (
    BackendError,
    ConnectError,
    DeadlineExceededError,
    DeliveryLost,
    OutcomeUnknownError,
    PublishRefusedError,
    QueueyError,
    UnroutableError,
)
from queuey_rabbitmq.core.queue_config import QueueConfig
from queuey_rabbitmq.core.reconnect import ReconnectPolicy

if TYPE_CHECKING:
    from pytest_queuey.broker_under_test import BrokerUnderTest
    from pytest_queuey.faults import Faults
    from queuey_rabbitmq.backend import RabbitMqBackend

LONGER_THAN_A_STOP: Final = 4.0
"""Seconds. RabbitMQ loses jobs that come back in the instant in which it is shut down (docs/how-to/clusters.md)."""


class LostConnections(WithFaults):
    """A lost connection is a pause; what it leaves unknown is said, and nothing is lost by it."""

    def test_a_publish_during_an_outage_waits_and_succeeds(
        self,
        faults: Faults,
        resilient: RabbitMqBackend,
        queuey_broker: BrokerUnderTest,
        queue: QueueConfig,
        new_job: MakeJob,
    ) -> None:
        faults.refuse_connections(for_=OUTAGE)
        faults.drop_connections()
        resilient.publish(new_job("late"))
        assert ready(queuey_broker, queue) == 1

    def test_a_declaration_during_an_outage_waits_and_succeeds(
        self, faults: Faults, resilient: RabbitMqBackend, queuey_broker: BrokerUnderTest, queue_name: str
    ) -> None:
        faults.refuse_connections(for_=OUTAGE)
        faults.drop_connections()
        resilient.declare([QueueConfig(f"{queue_name}.other")])
        assert queuey_broker.queue(f"{queue_name}.other") is not None

    def test_a_declaration_that_a_loss_left_without_an_answer_is_made_again(
        self,
        faults: Faults,
        resilient: RabbitMqBackend,
        clock: ContractClock,
        queuey_broker: BrokerUnderTest,
        queue_name: str,
    ) -> None:
        with faults.hang():
            declaring = in_thread(resilient.declare, [QueueConfig(f"{queue_name}.other")])
            clock.advance(0.1)
            faults.drop_connections()
        assert error_of(declaring, clock) is None
        assert queuey_broker.queue(f"{queue_name}.other") is not None

    def test_a_consumer_started_during_an_outage_waits_and_gets_its_jobs(
        self, faults: Faults, resilient: RabbitMqBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        resilient.publish(new_job("waits"))
        faults.refuse_connections(for_=OUTAGE)
        faults.drop_connections()
        with resilient.consume(queue) as deliveries:
            assert work_off(deliveries, 1) == ["waits"]

    def test_a_publish_fails_at_its_deadline_when_the_outage_outlasts_it(
        self, faults: Faults, hurried: RabbitMqBackend, clock: ContractClock, new_job: MakeJob
    ) -> None:
        faults.refuse_connections(for_=3 * DEADLINE)
        faults.drop_connections()
        clock.advance(0.05)  # the loss is noticed
        with ending_in_time(clock), pytest.raises(DeadlineExceededError, match=r"not sent.*There is no connection"):
            hurried.publish(new_job())

    def test_publishes_that_failed_in_an_outage_leave_room_for_others_after_it(
        self, faults: Faults, connect: Callable[..., RabbitMqBackend], clock: ContractClock, new_job: MakeJob
    ) -> None:
        backend = connect(HURRIED.replace(max_in_flight=1))
        faults.refuse_connections(for_=2.5 * DEADLINE)
        faults.drop_connections(after_publishes=1)
        for _ in range(2):
            with pytest.raises(DeadlineExceededError):
                backend.publish(new_job())
        clock.advance(DEADLINE + 0.2)
        backend.publish(new_job("after"))
        backend.publish(new_job("and one more"))

    def test_a_publish_whose_confirm_is_lost_is_sent_again_with_the_same_message_id(
        self,
        faults: Faults,
        resilient: RabbitMqBackend,
        queuey_broker: BrokerUnderTest,
        queue: QueueConfig,
        new_job: MakeJob,
    ) -> None:
        faults.drop_connections(after_publishes=1)
        job = new_job("at least once")
        resilient.publish(job)
        assert ready(queuey_broker, queue) == 2
        with BrokerDoor(queuey_broker.url) as door:
            messages = [door.get(queue.name), door.get(queue.name)]
        assert {message and message.properties.message_id for message in messages} == {str(job.job_id)}

    def test_a_publish_that_was_confirmed_before_the_loss_is_not_sent_again(
        self,
        faults: Faults,
        resilient: RabbitMqBackend,
        queuey_broker: BrokerUnderTest,
        queue: QueueConfig,
        new_job: MakeJob,
    ) -> None:
        faults.drop_connections(after_publishes=1, before_confirm=False)
        resilient.publish(new_job("once"))
        resilient.publish(new_job("after"))
        assert ready(queuey_broker, queue) == 2

    def test_without_republishing_a_publish_whose_confirm_is_lost_ends_as_unknown(
        self, faults: Faults, connect: Callable[..., RabbitMqBackend], new_job: MakeJob
    ) -> None:
        backend = connect(RESILIENT.replace(reconnect=ReconnectPolicy(base=0.05, max_delay=0.1, republish=False)))
        faults.drop_connections(after_publishes=1)
        with pytest.raises(OutcomeUnknownError, match="may or may not"):
            backend.publish(new_job())
        backend.publish(new_job("after"))

    def test_of_many_publishes_in_flight_over_a_loss_each_arrives(
        self, faults: Faults, resilient: RabbitMqBackend, clock: ContractClock, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        faults.drop_connections(after_publishes=30)
        futures = [resilient.publish_nowait(new_job(number)) for number in range(60)]
        assert [error_of(future, clock) for future in futures] == [None] * 60
        seen: set[Any] = set()
        with resilient.consume(queue) as deliveries:
            while len(seen) < 60:
                delivery = take_one(deliveries)
                seen.add(delivery.envelope.payload)
                delivery.ack()

    def test_a_job_put_into_a_hold_queue_over_a_loss_arrives(
        self, faults: Faults, resilient: RabbitMqBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        faults.drop_connections(after_publishes=1)
        resilient.publish(new_job("held"), delay=0.2)
        with resilient.consume(queue) as deliveries:
            assert take_one(deliveries).envelope.payload == "held"

    def test_a_consumer_resumes_after_a_loss(
        self, faults: Faults, resilient: RabbitMqBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        with resilient.consume(queue) as deliveries:
            seen: list[Any] = []
            for number in range(3):
                faults.drop_connections()
                resilient.publish(new_job(number))
                while number not in seen:
                    seen += work_off(deliveries, 1)

    def test_a_stale_outcome_raises_and_is_counted_and_the_job_comes_again_and_settles(
        self,
        faults: Faults,
        resilient: RabbitMqBackend,
        queuey_broker: BrokerUnderTest,
        queue: QueueConfig,
        new_job: MakeJob,
    ) -> None:
        resilient.publish(new_job("twice"))
        with resilient.consume(queue) as deliveries:
            stale = take_one(deliveries)
            faults.drop_connections()
            again = take_one(deliveries)
            assert again.envelope == stale.envelope
            assert again.redelivered
            with pytest.raises(DeliveryLost):
                stale.ack()
            assert resilient.stale_settlements == 1
            again.ack()
            resilient.declare([queue])  # the broker answers on the connection of the ack
            assert deliveries.get(timeout=0.2) is None
        assert ready(queuey_broker, queue) == 0

    @OUTCOMES_THAT_PUBLISH
    def test_a_stale_outcome_publishes_nothing(
        self,
        faults: Faults,
        resilient: RabbitMqBackend,
        queuey_broker: BrokerUnderTest,
        queue: QueueConfig,
        new_job: MakeJob,
        settle: Settle,
    ) -> None:
        resilient.publish(new_job("twice"))
        with resilient.consume(queue) as deliveries:
            stale = take_one(deliveries)
            faults.drop_connections()
            again = take_one(deliveries)
            with pytest.raises(DeliveryLost):
                settle(stale)
            again.ack()
        assert queuey_broker.queue(f"{queue.name}.deferred.100") is None
        assert ready(queuey_broker, QueueConfig(f"{queue.name}.dead")) == 0

    def test_what_was_declared_and_deleted_in_an_outage_exists_again_before_consumers_resume(
        self, faults: Faults, resilient: RabbitMqBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        with resilient.consume(queue) as deliveries:
            faults.refuse_connections(for_=OUTAGE)
            faults.drop_connections()
            faults.delete_queue(queue.name)
            faults.delete_queue(f"{queue.name}.dead")
            assert deliveries.get(timeout=3 * OUTAGE) is None
            resilient.publish(new_job("after"))
            take_one(deliveries).dead_letter("the dead queue is back too")

    @pytest.mark.parametrize("what", ["cancel_consumers", "delete_queue"])
    def test_a_consumer_that_the_broker_ended_resumes(
        self, faults: Faults, resilient: RabbitMqBackend, queue: QueueConfig, new_job: MakeJob, what: str
    ) -> None:
        with resilient.consume(queue) as deliveries:
            getattr(faults, what)(queue.name)
            assert deliveries.get(timeout=0.3) is None
            resilient.publish(new_job("after"))
            assert work_off(deliveries, 1) == ["after"]

    def test_what_a_cancelled_consumer_held_comes_again(
        self, faults: Faults, resilient: RabbitMqBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        resilient.publish(new_job("held"))
        with resilient.consume(queue) as deliveries:
            stale = take_one(deliveries)
            faults.cancel_consumers(queue.name)
            again = take_one(deliveries)
            assert again.envelope == stale.envelope
            with pytest.raises(DeliveryLost):
                stale.ack()
            again.ack()

    def test_the_first_connection_is_not_tried_again(self, faults: Faults, backend_factory: Callable[..., Any]) -> None:
        faults.refuse_connections(for_=OUTAGE)
        with pytest.raises(ConnectError):
            backend_factory(RESILIENT)

    def test_closing_in_an_outage_ends_in_time_and_what_waited_learns_of_it(
        self, faults: Faults, hurried: RabbitMqBackend, clock: ContractClock, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        deliveries = hurried.consume(queue)
        faults.refuse_connections(for_=10)
        faults.drop_connections()
        clock.advance(0.05)
        waiting = hurried.publish_nowait(new_job())
        with ending_in_time(clock):
            hurried.close()
        assert isinstance(error_of(waiting, clock), BackendError | QueueyError)
        with pytest.raises(QueueyError):
            deliveries.get(timeout=0)


REFUSALS: Final = pytest.mark.parametrize(
    ("what", "error"),
    [("nack_next", PublishRefusedError), ("return_next", UnroutableError)],
    ids=["nacked", "returned"],
)


class RefusedPublishes(WithFaults):
    """A refused publish fails by itself, and never costs the delivery that it came from."""

    @REFUSALS
    def test_a_refused_publish_raises_and_is_not_enqueued(
        self,
        faults: Faults,
        resilient: RabbitMqBackend,
        queuey_broker: BrokerUnderTest,
        queue: QueueConfig,
        new_job: MakeJob,
        what: str,
        error: type[BackendError],
    ) -> None:
        getattr(faults, what)()
        with pytest.raises(error, match=queue.name):
            resilient.publish(new_job("refused"))
        assert ready(queuey_broker, queue) == 0
        resilient.publish(new_job("taken"))
        assert ready(queuey_broker, queue) == 1

    @REFUSALS
    def test_of_many_in_flight_exactly_the_refused_fail(
        self,
        faults: Faults,
        resilient: RabbitMqBackend,
        clock: ContractClock,
        queue: QueueConfig,
        new_job: MakeJob,
        what: str,
        error: type[BackendError],
    ) -> None:
        resilient.publish(new_job("first"))
        getattr(faults, what)(2)
        futures = [resilient.publish_nowait(new_job(number)) for number in range(12)]
        outcomes = [type(error_of(future, clock)) for future in futures]
        assert outcomes == [error] * 2 + [type(None)] * 10
        with resilient.consume(queue) as deliveries:
            assert payloads(take(deliveries, 11)) == ["first", *range(2, 12)]

    @REFUSALS
    @OUTCOMES_THAT_PUBLISH
    def test_an_outcome_whose_publish_is_refused_leaves_the_delivery_unsettled(
        self,
        faults: Faults,
        resilient: RabbitMqBackend,
        queue: QueueConfig,
        new_job: MakeJob,
        settle: Settle,
        what: str,
        error: type[BackendError],
    ) -> None:
        resilient.publish(new_job("kept"))
        with resilient.consume(queue) as deliveries:
            delivery = take_one(deliveries)
            getattr(faults, what)()
            with pytest.raises(error):
                settle(delivery)
            assert deliveries.get(timeout=0.2) is None
        with resilient.consume(queue) as deliveries:
            again = take_one(deliveries)
            assert again.envelope == delivery.envelope
            settle(again)


class RestartedBrokers(WithFaults):
    """What is durable outlives the broker, and work goes on by itself."""

    def test_jobs_and_held_jobs_outlive_a_restart_and_consumers_resume(
        self,
        restart: Callable[[], None],
        resilient: RabbitMqBackend,
        queue: QueueConfig,
        new_job: MakeJob,
    ) -> None:
        resilient.publish(new_job("ready"))
        resilient.publish(new_job("held"), delay=LONGER_THAN_A_STOP)
        resilient.defer(new_job("deferred"), LONGER_THAN_A_STOP)
        with resilient.consume(queue) as deliveries:
            stale = take_one(deliveries)
            restart()
            seen = work_off(deliveries, 3)
            with pytest.raises(DeliveryLost):
                stale.ack()
            assert sorted(seen) == ["deferred", "held", "ready"]
            resilient.publish(new_job("after"))
            assert work_off(deliveries, 1) == ["after"]

    def test_what_is_transient_is_gone_after_a_restart(
        self,
        restart: Callable[[], None],
        resilient: RabbitMqBackend,
        queuey_broker: BrokerUnderTest,
        queue: QueueConfig,
        new_job: MakeJob,
    ) -> None:
        resilient.publish(new_job("persistent"))
        with BrokerDoor(queuey_broker.url) as door:
            door.publish(queue.name, b"transient", Properties(delivery_mode=1))
        assert ready(queuey_broker, queue) == 2
        restart()
        assert ready(queuey_broker, queue) == 1

    @pytest.fixture
    def restart(self, faults: Faults) -> Callable[[], None]:
        """Return what restarts the broker, and skips the test where that cannot be had."""
        from pytest_queuey.broker_under_test import NotOnThisBrokerError

        def restart() -> None:
            try:
                faults.restart()
            except NotOnThisBrokerError as error:
                reason = str(error)
            else:
                return
            pytest.skip(reason)

        return restart
