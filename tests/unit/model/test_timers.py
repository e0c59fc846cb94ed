from queuey_fake.model.timers import Timers


def fire_all(timers: Timers, until_ms: int) -> None:
    while (timer := timers.take_due(until_ms)) is not None:
        timer.action()


def test_timers_fire_in_the_order_of_their_deadlines() -> None:
    timers, fired = Timers(0), []
    timers.set(20, lambda: fired.append("late"))
    timers.set(10, lambda: fired.append("early"))
    fire_all(timers, 20)
    assert fired == ["early", "late"]


def test_of_two_timers_for_one_instant_the_one_set_first_fires_first() -> None:
    timers, fired = Timers(0), []
    timers.set(10, lambda: fired.append("first"))
    timers.set(10, lambda: fired.append("second"))
    fire_all(timers, 10)
    assert fired == ["first", "second"]


def test_each_timer_fires_at_its_own_instant() -> None:
    timers, instants = Timers(0), []
    for due_ms in (10, 25):
        timers.set(due_ms, lambda: instants.append(timers.now_ms))
    fire_all(timers, 100)
    assert instants == [10, 25]


def test_a_cancelled_timer_does_not_fire() -> None:
    timers, fired = Timers(0), []
    timer = timers.set(10, lambda: fired.append("never"))
    timers.set(10, lambda: fired.append("yes"))
    timers.cancel(timer)
    fire_all(timers, 10)
    assert fired == ["yes"]


def test_what_is_due_later_stays() -> None:
    timers = Timers(0)
    timers.set(11, lambda: None)
    assert timers.take_due(10) is None
    assert timers.next_due_ms == 11


def test_a_timer_that_is_overdue_does_not_turn_time_back() -> None:
    timers = Timers(100)
    timers.set(50, lambda: None)
    timers.take_due(100)
    assert timers.now_ms == 100


def test_what_is_due_after_time_was_set_back_fires_at_its_own_instant() -> None:
    timers = Timers(100)
    timers.set(50, lambda: None)
    timers.take_due(60)
    assert timers.now_ms == 60
