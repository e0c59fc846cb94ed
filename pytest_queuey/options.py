"""Owns every option of the plugin: one table makes the command line, the ini file and the checked settings.

Refuses to act on any of them, and to import anything that a test run without queuey would not need.
"""

import math
import os
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest

from pytest_queuey.asked import Asked, parse_brokers

SOURCES: Final = ("auto", "url", "local", "docker")
LOSSES: Final = ("fail", "report", "ignore")


# Tuples, as every test run of everyone who has this installed pays for making these classes: dataclasses take 2 ms.
# For the same reason annotations are no strings in this module and in `asked`: typing compiles each.
class Settings(NamedTuple):
    """What the options say, checked."""

    broker: Asked
    backend: str | None
    """The backend that the contract runs on, as MODULE:CLASS."""
    rabbitmq_source: str
    rabbitmq_url: str | None
    rabbitmq_ctl: tuple[str, ...]
    rabbitmq_server: str | None
    rabbitmq_image: str
    max_real_wait: float
    """Seconds that one `queuey_clock.advance` may really wait on a real broker."""
    wait_guard: float
    """Real seconds after which a forgotten wait of another thread is an error."""
    losses: str
    """What is done when the broker in memory loses a message of queuey's: fail, report or ignore."""
    foreign_losses: str
    """The same for messages that other clients published."""
    trace: str | None
    """The folder for pages that show what became of each message."""

    @property
    def may_lack_a_real_broker(self) -> bool:
        """Return whether a real one that cannot be had is passed over; not so where the URL of one was given."""
        has_url = self.rabbitmq_url is not None and self.rabbitmq_source in ("auto", "url")
        return self.broker.may_be_missing and not has_url


def _one_of(choices: tuple[str, ...]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"it must be one of {', '.join(choices)}")
        return text

    return parse


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise ValueError("it must be a number of seconds") from None
    if not math.isfinite(seconds) or seconds <= 0:
        raise ValueError("it must be a number of seconds above 0")
    return seconds


def _amqp_url(text: str) -> str | None:
    if not text:
        return None
    from queuey_rabbitmq import broker_urls

    broker_urls.parse(text)
    return text


def _module_and_name(text: str) -> str | None:
    module, colon, name = text.partition(":")
    if text and not (colon and name.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise ValueError("it must be MODULE:CLASS")
    return text or None


def _command(text: str) -> tuple[str, ...]:
    import shlex

    return tuple(shlex.split(text))


class Option(NamedTuple):
    """One option: `--queuey-NAME`, the ini `queuey_name`, and the field of Settings called the same."""

    name: str
    metavar: str
    default: str
    parse: Callable[[str], Any]
    help: str
    environment: str | None = None
    is_secret: bool = False
    """Whether a value may hold a password, and is not shown."""

    @property
    def flag(self) -> str:
        """Return the name on the command line."""
        return f"--queuey-{self.name}"

    @property
    def ini(self) -> str:
        """Return the name in the ini file."""
        return f"queuey_{self.field}"

    @property
    def field(self) -> str:
        """Return the name in Settings."""
        return self.name.replace("-", "_")

    def read(self, config: pytest.Config) -> Any:
        """Return the checked value: the command line's, else the environment's, else the ini's, else the default.

        Raises UsageError that names where a bad value stands.
        """
        given = (
            (self.flag, config.getoption(self.ini)),
            (self.environment or "", os.environ.get(self.environment) if self.environment else None),
            (f"ini {self.ini}", config.getini(self.ini) or None),
            (f"default of {self.flag}", self.default),
        )
        where, text = next((where, text) for where, text in given if text is not None)
        try:
            return self.parse(text)
        except ValueError as error:
            shown = where if self.is_secret else f"{where}={text}"
            raise pytest.UsageError(f"{shown}: {error}") from error


OPTIONS: Final = (
    Option(
        "broker",
        "BROKERS",
        "fake",
        parse_brokers,
        "The brokers that tests using `queuey_broker` run on: fake (the one in memory), rabbitmq (a real one), all "
        "(both), auto (both where a real one can be had), or several with commas between, also of a version: "
        "fake-3.10,fake-4.3,rabbitmq-4.0.",
    ),
    Option(
        "backend",
        "MODULE:CLASS",
        "",
        _module_and_name,
        "The backend that the contract runs on: pytest --pyargs pytest_queuey.test_contract. A subclass of "
        "pytest_queuey.contract.BackendUnderTest.",
    ),
    Option(
        "rabbitmq-source",
        "|".join(SOURCES),
        "auto",
        _one_of(SOURCES),
        "Where the real RabbitMQ comes from: a URL, a private server started from a local installation, a container; "
        "auto takes the first of these that is there.",
    ),
    Option(
        "rabbitmq-url",
        "URL",
        "",
        _amqp_url,
        "A running RabbitMQ to test on, amqp://user:password@host:port/vhost, or amqps://, or of several nodes, as in "
        "production; also environment QUEUEY_RABBITMQ_URL.",
        environment="QUEUEY_RABBITMQ_URL",
        is_secret=True,
    ),
    Option(
        "rabbitmq-ctl",
        "COMMAND",
        "",
        _command,
        "With a URL: the command that runs rabbitmqctl for that broker ('rabbitmqctl -n rabbit@host', 'docker exec "
        "NAME rabbitmqctl'). With it each test gets a virtual host of its own and can look at queues.",
    ),
    Option(
        "rabbitmq-server",
        "PATH",
        "",
        lambda text: text or None,
        "The rabbitmq-server executable of the local source, or several with the system's path separator between, of "
        "which the version is taken that is asked for; looked for where installations put it when not given.",
    ),
    Option(
        "rabbitmq-image",
        "IMAGE",
        "rabbitmq:4.0",
        str,
        "The image of the docker source; for rabbitmq-TAG in --queuey-broker, with that tag.",
    ),
    Option(
        "max-real-wait",
        "SECONDS",
        "2",
        _seconds,
        "How long one queuey_clock.advance() may really wait on a real broker.",
    ),
    Option(
        "wait-guard",
        "SECONDS",
        "10",
        _seconds,
        "Real seconds after which a forgotten wait of another thread is an error.",
    ),
    Option(
        "losses",
        "|".join(LOSSES),
        "fail",
        _one_of(LOSSES),
        "What to do where the broker in memory drops a message of queuey's that nobody asked it to drop, as RabbitMQ "
        "does without a trace: fail the test, report it at the end of the run, or ignore it.",
    ),
    Option(
        "foreign-losses",
        "|".join(LOSSES),
        "report",
        _one_of(LOSSES),
        "The same for messages that other clients published over the port.",
    ),
    Option(
        "trace",
        "DIR",
        "",
        lambda text: text or None,
        "Write for each test on the broker in memory a page (HTML) that shows what became of each of its messages and "
        "when, and an index of them; made where it is missing.",
    ),
)


def add_options(parser: pytest.Parser) -> None:
    """Add every option of the table to the command line and to the ini file."""
    group = parser.getgroup("queuey", "queuey: job queues on a RabbitMQ in memory or on a real one")
    for option in OPTIONS:
        default = f" Default: {option.default}." if option.default else ""
        group.addoption(
            option.flag,
            dest=option.ini,
            metavar=option.metavar,
            default=None,
            help=f"{option.help}{default} (ini: {option.ini})".replace("%", "%%"),
        )
        parser.addini(option.ini, f"{option.help}{default} (command line: {option.flag})", default="")


def read_settings(config: pytest.Config) -> Settings:
    """Return the checked settings of a run; raises UsageError for a bad value."""
    return Settings(**{option.field: option.read(config) for option in OPTIONS})
