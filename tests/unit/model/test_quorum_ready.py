from queuey_fake.model.message import Message, QueuedMessage
from queuey_fake.model.properties import NO_PROPERTIES
from queuey_fake.model.quorum_ready import QuorumReadyMessages


def filled(priorities: str, *levels: int) -> QuorumReadyMessages:
    ready = QuorumReadyMessages(priorities)
    for sequence, level in enumerate(levels, 1):
        ready.append(QueuedMessage(Message(sequence, "", "q", NO_PROPERTIES, b"x"), sequence, None, level))
    return ready


def taken(ready: QuorumReadyMessages, count: int) -> list[int]:
    return [ready.pop().sequence for _ in range(count)]


def test_what_was_given_back_goes_before_everything_in_the_order_of_giving_back() -> None:
    ready = filled("strict", 4, 4, 9)
    first, second = ready.pop(), ready.pop()
    ready.give_back(second)
    ready.give_back(first)
    assert taken(ready, 3) == [second.sequence, first.sequence, 2]


def test_of_two_classes_the_lower_has_a_turn_after_two_of_the_higher() -> None:
    ready = filled("two classes", 0, 0, 1, 1, 1, 1)
    assert taken(ready, 6) == [3, 4, 1, 5, 6, 2]


def test_the_higher_class_keeps_the_turn_of_the_lower_when_it_is_older() -> None:
    ready = filled("two classes", 1, 1, 1, 0)
    assert taken(ready, 4) == [1, 2, 3, 4]


def test_strict_levels_go_from_the_highest_down() -> None:
    ready = filled("strict", 4, 31, 0, 9)
    assert taken(ready, 4) == [2, 4, 1, 3]


def test_the_level_of_a_priority_by_version() -> None:
    levels = {
        kind: [QuorumReadyMessages(kind).level_of(p) for p in (None, 4, 5, 200)]
        for kind in ("none", "two classes", "strict")
    }
    assert levels == {"none": [0, 0, 0, 0], "two classes": [0, 0, 1, 1], "strict": [4, 4, 5, 31]}


def test_clearing_counts_everything() -> None:
    ready = filled("strict", 4, 5)
    ready.give_back(ready.pop())
    assert (ready.count, ready.octets, ready.clear(), ready.count, ready.octets) == (2, 2, 2, 0, 0)
