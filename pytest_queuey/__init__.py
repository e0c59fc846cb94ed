"""The pytest plugin: `queuey_broker` and friends, and the contract suite for backends."""

import pytest

# The contract's assertions explain themselves also where pytest does not rewrite installed plugins on its own:
# with plugin autoload off, or loaded by `-p pytest_queuey.plugin`.
pytest.register_assert_rewrite("pytest_queuey.contract")
