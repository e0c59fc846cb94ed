"""What real brokers answered, the fake answers: each transcript is replayed on it, in virtual time, through pika."""

import json
from pathlib import Path
from typing import Any

import pytest

from queuey_fake import FakeBroker
from queuey_fake.model.versions import VERSIONS
from tests.recorded.player import SETTLE_MS, Player


def transcripts() -> list[Any]:
    found = []
    for version in VERSIONS.values():
        for name in ("every-version", version.release):
            for line in Path(__file__).with_name(f"{name}.jsonl").read_text().splitlines():
                transcript = json.loads(line)
                found.append(pytest.param(version.name, transcript, id=f"{version.name}-{transcript['name']}"))
    return found


@pytest.mark.parametrize(("version", "transcript"), transcripts())
def test_the_fake_answers_as_rabbitmq_did(version: str, transcript: dict[str, Any]) -> None:
    with FakeBroker(version, permit={"transient_nonexcl_queues"}) as broker:
        answers = Player(broker, transcript.get("settle_ms", SETTLE_MS)).play(transcript["steps"])
    steps = enumerate(zip(transcript["steps"], answers, strict=True))
    got = {f"{number} {step['op']}": {"result": result, "events": events} for number, (step, (result, events)) in steps}
    expected = {
        f"{number} {step['op']}": {"result": step["result"], "events": step.get("events", {})}
        for number, step in enumerate(transcript["steps"])
    }
    assert got == expected, transcript["reason"]
