"""Acks are batched into `multiple` where that is right, and none is held back."""

from hypothesis import given
from hypothesis import strategies as st

from queuey_rabbitmq.session.acks import AckBatch


def acked(batch: AckBatch, *tags: int) -> list[tuple[int, bool]]:
    for tag in tags:
        batch.ack(tag)
    return batch.flush()


def test_a_settled_prefix_becomes_one_multiple() -> None:
    assert acked(AckBatch(), 2, 1, 3) == [(3, True)]


def test_one_ack_is_sent_as_a_single_one() -> None:
    assert acked(AckBatch(), 1) == [(1, False)]


def test_what_lies_above_a_delivery_that_is_still_worked_on_is_acked_singly_and_not_held_back() -> None:
    batch = AckBatch()
    assert acked(batch, 1, 3, 4) == [(1, False), (3, False), (4, False)]
    assert acked(batch, 2, 5) == [(5, True)]


def test_a_multiple_never_stands_at_a_tag_that_was_acked_before() -> None:
    batch = AckBatch()
    assert acked(batch, 2) == [(2, False)]
    assert acked(batch, 1) == [(1, False)]


def test_a_nacked_tag_is_a_hole_that_a_multiple_may_cover() -> None:
    batch = AckBatch()
    batch.settled_otherwise(2)
    assert acked(batch, 1, 3) == [(3, True)]


def test_nothing_to_send_is_nothing_sent() -> None:
    assert AckBatch().flush() == []


@given(st.lists(st.tuples(st.permutations(range(1, 13)), st.integers(1, 4)), min_size=1, max_size=1), st.data())
def test_a_broker_that_keeps_the_rules_accepts_every_batch(
    plan: list[tuple[list[int], int]], data: st.DataObject
) -> None:
    order, flush_every = plan[0]
    batch, unacked, done = AckBatch(), set(range(1, 13)), set()
    for position, tag in enumerate(order, start=1):
        if data.draw(st.booleans()):
            batch.ack(tag)
        else:
            unacked.remove(tag)
            batch.settled_otherwise(tag)
        done.add(tag)
        if position % flush_every == 0 or position == len(order):
            for acked_tag, multiple in batch.flush():
                assert acked_tag in unacked, "406 unknown delivery tag"
                covered = {t for t in unacked if t <= acked_tag} if multiple else {acked_tag}
                assert covered <= done, "a delivery that is still worked on was acked"
                unacked -= covered
            assert not unacked & done, "a settled delivery was held back"
