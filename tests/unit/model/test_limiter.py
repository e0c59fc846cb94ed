from queuey_fake.model.limiter import ChannelLimiter


class WaitingQueue:
    def __init__(self) -> None:
        self.resumed: list[object] = []
        self.is_deleted = False

    def resume(self, mailbox: object) -> None:
        self.resumed.append(mailbox)


def full(limiter: ChannelLimiter, queue: WaitingQueue) -> ChannelLimiter:
    limiter.limit(1, 0)
    assert limiter.take_room(queue, ack_required=True)
    assert not limiter.take_room(queue, ack_required=True)
    return limiter


def test_without_a_limit_there_is_always_room() -> None:
    limiter = ChannelLimiter("channel")
    assert not limiter.is_active
    assert all(limiter.take_room(WaitingQueue(), ack_required=True) for _ in range(100))


def test_a_queue_that_waited_is_told_once_when_there_is_room() -> None:
    queue = WaitingQueue()
    limiter = full(ChannelLimiter("channel"), queue)
    limiter.wake(limiter.give_room(1))
    limiter.wake(limiter.give_room(0))
    assert queue.resumed == ["channel"]


def test_a_queue_that_is_gone_waits_no_more() -> None:
    queue = WaitingQueue()
    limiter = full(ChannelLimiter("channel"), queue)
    queue.is_deleted = True
    limiter.wake(limiter.give_room(1))
    assert queue.resumed == []


def test_a_higher_limit_makes_room() -> None:
    queue = WaitingQueue()
    full(ChannelLimiter("channel"), queue).limit(2, 0)
    assert queue.resumed == ["channel"]


def test_lifting_the_limit_makes_room() -> None:
    queue = WaitingQueue()
    limiter = full(ChannelLimiter("channel"), queue)
    limiter.unlimit()
    assert queue.resumed == ["channel"]
    assert not limiter.is_active


def test_the_first_limit_counts_what_is_unacknowledged_and_later_ones_do_not() -> None:
    limiter = ChannelLimiter("channel")
    limiter.limit(2, 2)
    assert limiter.is_reached
    limiter.limit(3, 9)
    assert not limiter.is_reached


def test_deliveries_that_need_no_ack_take_no_room() -> None:
    limiter = ChannelLimiter("channel")
    limiter.limit(1, 0)
    assert all(limiter.take_room(WaitingQueue(), ack_required=False) for _ in range(3))
