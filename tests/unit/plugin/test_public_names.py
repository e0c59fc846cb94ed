import pytest

import pytest_queuey


@pytest.mark.parametrize("name", pytest_queuey.__all__)
def test_every_public_name_loads(name: str) -> None:
    assert getattr(pytest_queuey, name).__name__ == name
    assert name in dir(pytest_queuey)


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'FakeBroker'"):
        _ = pytest_queuey.FakeBroker
