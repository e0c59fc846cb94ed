from hypothesis import given
from hypothesis import strategies as st

from queuey_fake.model.message import Message, QueuedMessage
from queuey_fake.model.properties import NO_PROPERTIES
from queuey_fake.model.ready import ReadyMessages


def queued(sequence: int, level: int = 0, body: bytes = b"") -> QueuedMessage:
    return QueuedMessage(Message(sequence, "", "q", NO_PROPERTIES, body), sequence, None, level)


def sequences(ready: ReadyMessages) -> list[int]:
    return [message.sequence for message in ready]


def test_messages_go_in_the_order_in_which_they_came() -> None:
    ready = ReadyMessages(0)
    for sequence in (1, 2, 3):
        ready.append(queued(sequence))
    assert [ready.pop().sequence for _ in range(3)] == [1, 2, 3]


def test_the_highest_level_goes_first() -> None:
    ready = ReadyMessages(9)
    for sequence, level in ((1, 0), (2, 9), (3, 5)):
        ready.append(queued(sequence, level))
    assert [ready.pop().sequence for _ in range(3)] == [2, 3, 1]


def test_a_requeued_message_returns_to_its_place_between_others() -> None:
    ready = ReadyMessages(0)
    for sequence in (1, 2, 3):
        ready.append(queued(sequence))
    first, second = ready.pop(), ready.pop()
    ready.requeue(second)
    assert sequences(ready) == [2, 3]
    ready.requeue(first)
    assert sequences(ready) == [1, 2, 3]


def test_a_requeued_message_stays_in_its_level() -> None:
    ready = ReadyMessages(1)
    ready.append(queued(1, 0))
    low = ready.pop()
    ready.append(queued(2, 1))
    ready.requeue(low)
    assert sequences(ready) == [2, 1]


def test_count_and_octets_follow_every_change() -> None:
    ready = ReadyMessages(0)
    ready.append(queued(1, body=b"abc"))
    ready.append(queued(2, body=b"de"))
    taken = ready.pop()
    assert (ready.count, ready.octets) == (1, 2)
    ready.requeue(taken)
    assert (ready.count, ready.octets) == (2, 5)
    assert ready.clear() == 2
    assert (ready.count, ready.octets, ready.head()) == (0, 0, None)


@given(st.lists(st.tuples(st.sampled_from(["append", "pop", "requeue"]), st.integers(0, 3)), max_size=60))
def test_the_order_is_by_level_and_sequence_whatever_happens(steps: list[tuple[str, int]]) -> None:
    ready, expected, taken = ReadyMessages(3), [], []
    for sequence, (step, number) in enumerate(steps):
        match step:
            case "append":
                expected.append(queued(sequence, number))
                ready.append(expected[-1])
            case "pop" if expected:
                taken.append(ready.pop())
                assert taken[-1] is expected.pop(0)
            case "requeue" if taken:
                expected.append(taken.pop(number % len(taken)))
                ready.requeue(expected[-1])
        expected.sort(key=lambda message: (-message.level, message.sequence))
        assert list(ready) == expected
        assert ready.head() is (expected[0] if expected else None)
        assert ready.count == len(expected)
