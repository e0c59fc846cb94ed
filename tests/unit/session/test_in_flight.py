"""The bound on what is in flight counts messages and bytes, and serves waiters in order."""

from concurrent.futures import Future

from queuey_rabbitmq.session.in_flight import InFlightBound


def waiting(bound: InFlightBound, size: int) -> Future[None]:
    slot = bound.enter(size)
    assert slot is not None, "there should have been no room"
    return slot


def test_the_count_bounds() -> None:
    bound = InFlightBound(messages=2, bytes_=100)
    assert bound.enter(1) is None
    assert bound.enter(1) is None
    assert bound.enter(1) is not None


def test_the_bytes_bound() -> None:
    bound = InFlightBound(messages=10, bytes_=100)
    assert bound.enter(60) is None
    assert bound.enter(41) is not None


def test_a_message_larger_than_the_bound_enters_alone() -> None:
    bound = InFlightBound(messages=10, bytes_=100)
    assert bound.enter(1000) is None
    slot = waiting(bound, 1)
    assert bound.leave(1000) == [slot]


def test_waiters_enter_in_the_order_they_came_even_where_a_later_one_would_fit() -> None:
    bound = InFlightBound(messages=10, bytes_=100)
    bound.enter(90)
    large, small = waiting(bound, 50), waiting(bound, 5)
    assert bound.leave(90) == [large, small]


def test_one_that_leaves_lets_as_many_in_as_fit() -> None:
    bound = InFlightBound(messages=10, bytes_=100)
    bound.enter(100)
    first, second, third = waiting(bound, 40), waiting(bound, 60), waiting(bound, 1)
    assert bound.leave(100) == [first, second]
    assert bound.leave(40) == [third]


def test_several_that_leave_together_count_as_several() -> None:
    bound = InFlightBound(messages=2, bytes_=100)
    bound.enter(60)
    bound.enter(40)
    first, second = waiting(bound, 50), waiting(bound, 50)
    assert bound.leave(100, messages=2) == [first, second]


def test_waiters_are_let_in_again_in_a_batch_below_three_quarters_of_the_bound() -> None:
    bound = InFlightBound(messages=8, bytes_=1000)
    for _ in range(8):
        bound.enter(1)
    slots = [waiting(bound, 1) for _ in range(3)]
    assert bound.leave(1) == []
    assert bound.leave(1) == slots[:2]


def test_one_that_gives_up_waiting_lets_those_behind_it_in() -> None:
    bound = InFlightBound(messages=10, bytes_=100)
    bound.enter(70)
    large, small = waiting(bound, 50), waiting(bound, 5)
    assert bound.give_up(large, 50) == [small]


def test_one_that_gives_up_as_it_is_granted_gives_the_slot_back() -> None:
    bound = InFlightBound(messages=1, bytes_=100)
    bound.enter(1)
    granted, next_one = waiting(bound, 1), waiting(bound, 1)
    assert bound.leave(1) == [granted]
    assert bound.give_up(granted, 1) == [next_one]
