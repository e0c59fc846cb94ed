"""The pytest plugin: `queuey_broker` and friends, and the contract suite for backends."""
