import re

from queuey_fake.model.names import Names


def test_made_up_names_have_rabbitmqs_form() -> None:
    names = Names()
    assert re.fullmatch(r"amq\.gen-[A-Za-z0-9_-]{22}", names.queue())
    assert re.fullmatch(r"amq\.ctag-[A-Za-z0-9_-]{22}", names.consumer_tag())
    assert names.reply_queue().startswith("amq.rabbitmq.reply-to.")


def test_no_name_is_made_up_twice_and_each_run_makes_up_the_same() -> None:
    names, again = Names(), Names()
    made_up = [names.queue() for _ in range(100)]
    assert len(set(made_up)) == 100
    assert made_up == [again.queue() for _ in range(100)]
