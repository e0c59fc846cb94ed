"""The confirm ledger credits confirms, nacks and returns to the right publish."""

from queuey_rabbitmq.amqp import Properties
from queuey_rabbitmq.session.confirms import ConfirmLedger
from queuey_rabbitmq.session.operations import Message, PublishOperation


def publish(queue: str = "q", message_id: str = "m", body: bytes = b"{}") -> PublishOperation:
    message = Message(queue, Properties(message_id=message_id), body)
    return PublishOperation(message=message, deadline_ms=0, timeout_ms=0)


def ledger_with(*operations: PublishOperation) -> ConfirmLedger:
    ledger = ConfirmLedger()
    for operation in operations:
        ledger.published(operation)
    return ledger


def test_a_single_confirm_settles_its_publish_alone_and_out_of_order() -> None:
    first, second = publish(), publish()
    ledger = ledger_with(first, second)
    assert ledger.settle(2, multiple=False) == [second]
    assert ledger.settle(1, multiple=False) == [first]


def test_a_multiple_confirm_settles_what_is_still_open_up_to_its_number() -> None:
    operations = [publish() for _ in range(5)]
    ledger = ledger_with(*operations)
    ledger.settle(2, multiple=False)
    assert ledger.settle(4, multiple=True) == [operations[0], operations[2], operations[3]]
    assert ledger.settle(5, multiple=False) == [operations[4]]


def test_a_confirm_of_what_is_settled_already_settles_nothing() -> None:
    ledger = ledger_with(publish())
    ledger.settle(1, multiple=False)
    assert ledger.settle(1, multiple=False) == []
    assert ledger.settle(1, multiple=True) == []


def test_a_return_marks_the_publish_with_its_key_and_message_id_and_no_other() -> None:
    other_queue, other_id, meant = publish("p", "b"), publish("q", "a"), publish("q", "b")
    ledger = ledger_with(other_queue, other_id, meant)
    assert ledger.returned("q", "b", "312 NO_ROUTE")
    assert [operation.returned for operation in (other_queue, other_id, meant)] == [None, None, "312 NO_ROUTE"]


def test_returns_of_publishes_that_look_the_same_are_credited_in_publish_order() -> None:
    twins = [publish(), publish(), publish()]
    ledger = ledger_with(*twins)
    ledger.returned("q", "m", "first")
    ledger.returned("q", "m", "second")
    assert [operation.returned for operation in twins] == ["first", "second", None]


def test_a_return_that_matches_nothing_is_credited_to_nobody() -> None:
    operation = publish()
    ledger = ledger_with(operation)
    assert not ledger.returned("q", "another", "312 NO_ROUTE")
    assert operation.returned is None


def test_the_broker_does_not_count_a_publish_that_could_not_be_written() -> None:
    first, unwritten, second, third = publish(), publish(), publish(), publish()
    ledger = ledger_with(first, unwritten, second)
    assert ledger.refused(unwritten.message.properties) is unwritten
    ledger.published(third)
    assert [ledger.settle(tag, multiple=False) for tag in (3, 1, 2)] == [[third], [first], [second]]


def test_a_lost_channel_leaves_every_unsettled_publish_in_publish_order() -> None:
    operations = [publish(), publish(), publish()]
    ledger = ledger_with(*operations)
    ledger.settle(2, multiple=False)
    assert ledger.take_all() == [operations[0], operations[2]]
    assert len(ledger) == 0
