"""Names of queues that tests have in a virtual host which they share."""

import re
from pathlib import Path

from pytest_queuey.shared_vhost import SharedVhost

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "real-brokers.md"


def test_what_a_killed_run_leaves_is_known_by_its_name_as_the_docs_say() -> None:
    found = re.search(r"set_policy \S+ '(?P<names>.*?)' ", PAGE.read_text())
    assert found is not None
    assert re.search(found["names"], SharedVhost("amqp://broker").name("emails"))
    assert not re.search(found["names"], "queuey-emails")
