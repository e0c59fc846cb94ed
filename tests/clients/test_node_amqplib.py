"""amqplib for node, installed into a folder that is thrown away; $QUEUEY_NODE_MODULES names one that has it already."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from queuey_fake import FakeBroker

TIMEOUT_S = 120
SCRIPT = Path(__file__).with_name("works_a_queue_off.js")


@pytest.fixture(scope="module")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> str:
    given = os.environ.get("QUEUEY_NODE_MODULES")
    if given:
        return given
    if os.environ.get("QUEUEY_CLIENTS") != "1":
        pytest.skip("amqplib is fetched in the lane of the clients alone: tox -e clients")
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    folder = tmp_path_factory.mktemp("node")
    subprocess.run([npm, "install", "--no-audit", "--no-fund", "amqplib"], cwd=folder, check=True, timeout=TIMEOUT_S)  # noqa: S603 -- commands of our own
    return str(folder / "node_modules")


def test_amqplib_works_a_queue_off_and_connects_again(broker: FakeBroker, node_modules: str) -> None:
    environment = os.environ | {"NODE_PATH": node_modules}
    with subprocess.Popen(  # noqa: S603 -- commands of our own
        [shutil.which("node") or "node", str(SCRIPT), broker.url], env=environment, stdout=subprocess.PIPE, text=True
    ) as node:
        assert node.stdout is not None
        told = json.loads(node.stdout.readline())
        broker.faults.drop_connections()
        assert json.loads(node.stdout.readline()) == {"queue": 0}
        assert node.wait(TIMEOUT_S) == 0
    assert told == {
        "returned": ["NO_ROUTE", "nowhere"],
        "seen": [["acked", False], ["returned", False], ["returned", True], ["rejected", False]],
        "dead": [["returned", "rejected"], ["rejected", "rejected"]],
    }
