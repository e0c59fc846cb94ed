"""The program that shows the application: what README says of it is what it prints."""

import re
import socket
import time

import main
import pytest
from emails import Emails, welcome

from pytest_queuey.broker_under_test import BrokerUnderTest
from queuey_rabbitmq import Producer

STORY = """\
ada: the API answered 429
meanwhile 5 more pile up
grace: sent on attempt 1
alan: sent on attempt 1
edsger: sent on attempt 1
the deferral is over
ada: sent on attempt 1, after a deferral
barbara: the API answered 503 Service Unavailable. Attempt 2
nobody: the API answered 400
barbara: the API answered 503 Service Unavailable. Attempt 3
barbara: sent on attempt 3
dead queue: nobody, because fatal: the API answered 400 no such mailbox""".splitlines()


def told(output: str) -> list[tuple[float, str]]:
    """Return what was printed with a time, in seconds, in order."""
    return [(float(at), what) for at, what in re.findall(r"^ +(\d+\.\d)  (.*)$", output, flags=re.MULTILINE)]


def test_the_story_in_memory_takes_more_than_a_minute_of_its_time_and_a_moment_of_ours(
    capsys: pytest.CaptureFixture[str],
) -> None:
    begun = time.perf_counter()
    main.main([])
    assert time.perf_counter() - begun < 10  # a moment, on a machine however busy; waiting would take over a minute
    lines = told(capsys.readouterr().out)
    assert [what for _, what in lines if not any(line in what for line in STORY)] == []
    assert [at for at, _ in lines] == [0, 0, 12, 24, 36, 36, 48, 48, 48, 53, 75, 75]


@pytest.mark.queuey_broker("rabbitmq")
def test_the_story_is_the_same_on_a_real_broker(
    queuey_broker: BrokerUnderTest, capsys: pytest.CaptureFixture[str]
) -> None:
    main.main(["--url", queuey_broker.url, "--pace", "0.05"])
    lines = told(capsys.readouterr().out)
    assert len(lines) == len(STORY)
    assert [what for (_, what), line in zip(lines, STORY, strict=True) if line not in what] == []


@pytest.mark.queuey_broker("rabbitmq")
def test_a_queue_that_may_be_somebodys_is_left_alone(queuey_broker: BrokerUnderTest) -> None:
    with queuey_broker.backend() as backend:
        welcome(Producer(backend, Emails), "ada")
    with pytest.raises(SystemExit, match=r"^queue 'myapp.emails' is there already"):
        main.main(["--url", queuey_broker.url])
    queue = queuey_broker.queue(Emails.emails.name)
    assert queue is not None
    assert queue.ready == 1


def test_a_pace_of_zero_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.main(["--pace", "0"])
    assert "more than 0" in capsys.readouterr().err


def test_a_broker_that_is_not_there_is_said_in_a_line() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"amqp://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(SystemExit, match=r"^connecting to the broker failed while connecting"):
            main.main(["--url", url])
