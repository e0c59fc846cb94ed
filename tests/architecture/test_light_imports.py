"""Importing a package loads nothing heavy; its names load when they are asked for."""

import subprocess
import sys

import pytest

import queuey_rabbitmq

HEAVY = ("pika", "testcontainers", "docker", "freezegun", "asyncio")


def loaded_after(statements: str) -> list[str]:
    """Run statements in a new interpreter and return which of the heavy modules are loaded then."""
    program = f"import sys\n{statements}\nprint(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run(  # noqa: S603 -- our own interpreter and program
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("package", ["queuey_rabbitmq", "queuey_fake", "pytest_queuey"])
def test_importing_a_package_loads_nothing_heavy(package: str) -> None:
    assert loaded_after(f"import {package}") == []


def test_the_vocabulary_and_the_pure_rules_need_no_amqp_client() -> None:
    vocabulary = "Envelope, QueueConfig, RetryPolicy, RabbitMqOptions, Backend, Delivery, QueueyError, topology, codec"
    assert loaded_after(f"from queuey_rabbitmq import {vocabulary}") == []


def test_a_heavy_module_would_be_noticed() -> None:
    assert "pika" in loaded_after("from queuey_rabbitmq import pika")


def test_the_list_of_public_names_is_sorted_and_complete() -> None:
    assert queuey_rabbitmq.__all__ == sorted(set(queuey_rabbitmq.__all__))
    assert set(queuey_rabbitmq._MODULES) | set(queuey_rabbitmq._HOMES) < set(queuey_rabbitmq.__all__)
    assert set(queuey_rabbitmq.__all__) <= set(dir(queuey_rabbitmq))


@pytest.mark.parametrize("name", queuey_rabbitmq.__all__)
def test_every_public_name_loads(name: str) -> None:
    value = getattr(queuey_rabbitmq, name)
    assert value.__name__.split(".")[-1] == name


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Producr'"):
        _ = queuey_rabbitmq.Producr
