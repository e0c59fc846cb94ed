import pytest

from queuey_fake.model.delivery import PendingAck
from queuey_fake.model.errors import ChannelException
from queuey_fake.model.message import Message, QueuedMessage
from queuey_fake.model.properties import NO_PROPERTIES
from queuey_fake.model.unacked import Unacked, in_groups


class NamedQueue:
    def __init__(self, name: str, *, is_deleted: bool = False) -> None:
        self.name = name
        self.is_deleted = is_deleted


Q = NamedQueue("q")


def pending(delivery_tag: int, consumer_tag: str | None = None, queue: NamedQueue = Q) -> PendingAck:
    queued = QueuedMessage(Message(delivery_tag, "", "q", NO_PROPERTIES, b""), delivery_tag, None, 0)
    return PendingAck(delivery_tag, consumer_tag, queue, queued)  # type: ignore[arg-type]  # only name and is_deleted count


def holding(*tags: int) -> Unacked:
    unacked = Unacked()
    for tag in tags:
        unacked.add(pending(tag))
    return unacked


def tags(taken: list[PendingAck]) -> list[int]:
    return [one.delivery_tag for one in taken]


def test_one_delivery_is_taken_by_its_tag() -> None:
    unacked = holding(1, 2, 3)
    assert tags(unacked.take(2, multiple=False)) == [2]
    assert tags(unacked.take_all()) == [1, 3]


def test_with_multiple_all_up_to_the_tag_are_taken() -> None:
    unacked = holding(1, 2, 4, 5)
    assert tags(unacked.take(4, multiple=True)) == [1, 2, 4]
    assert len(unacked) == 1


def test_tag_zero_with_multiple_takes_all_even_when_there_is_nothing() -> None:
    assert tags(holding(3, 7).take(0, multiple=True)) == [3, 7]
    assert holding().take(0, multiple=True) == []


@pytest.mark.parametrize(("tag", "multiple"), [(0, False), (2, False), (2, True), (9, True)])
def test_a_tag_that_is_not_outstanding_is_refused_and_nothing_is_taken(tag: int, multiple: bool) -> None:  # noqa: FBT001  a case
    unacked = holding(1, 3)
    with pytest.raises(ChannelException, match=f"unknown delivery tag {tag}"):
        unacked.take(tag, multiple=multiple)
    assert len(unacked) == 2


def test_what_is_put_back_goes_to_its_place() -> None:
    unacked = holding(1, 2, 3)
    taken = unacked.take(1, multiple=False)
    unacked.put_back(taken)
    assert tags(unacked.take(2, multiple=True)) == [1, 2]


def test_gets_are_settled_one_by_one_before_consumers_and_those_by_the_octets_of_their_tags() -> None:
    given = [pending(1, "zz"), pending(2, "aa"), pending(3, "zz"), pending(4, "aa"), pending(5)]
    assert [tags(group) for group in in_groups(given)] == [[5], [2, 4], [1, 3]]


def test_queues_are_settled_by_name() -> None:
    other = NamedQueue("a")
    assert [tags(group) for group in in_groups([pending(1), pending(2, None, other)])] == [[2], [1]]


def test_deliveries_of_a_deleted_queue_are_left_out() -> None:
    gone = NamedQueue("gone", is_deleted=True)
    assert in_groups([pending(1, None, gone)]) == []
    assert [tags(group) for group in in_groups([pending(1, None, gone), pending(2)])] == [[2]]
