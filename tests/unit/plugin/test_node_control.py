from pathlib import Path

import pytest

from pytest_queuey.node_control import CommandControl, ControlError, SocketControl, from_base64


def script(path: Path, text: str) -> tuple[str, ...]:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return (str(path),)


def test_a_long_value_that_rabbitmqctl_breaks_over_lines_is_whole() -> None:
    assert from_base64(b'<<"eyJhIjog"\n  "MX0=">>\n') == b'{"a": 1}'


def test_the_command_is_asked_to_eval(tmp_path: Path) -> None:
    command = script(tmp_path / "ctl", 'echo "$1" "$2" >"$0.asked"; echo \'<<"NDI=">>\'')
    assert CommandControl((*command,)).evaluate("answer()") == b"42"
    asked = (tmp_path / "ctl.asked").read_text()
    assert asked == "eval base64:encode(iolist_to_binary(begin answer() end)).\n"


def test_a_command_that_fails_says_so_in_its_words(tmp_path: Path) -> None:
    command = script(tmp_path / "ctl", "echo 'Error: unable to perform an operation on node' >&2; exit 69")
    with pytest.raises(ControlError, match="eval' ended with 69: Error: unable to perform an operation on node"):
        CommandControl(command).evaluate("answer()")


def test_a_command_that_prints_no_value_is_no_rabbitmqctl() -> None:
    with pytest.raises(ControlError, match="'/bin/echo eval' printed no value as rabbitmqctl does: b'eval base64"):
        CommandControl(("/bin/echo",)).evaluate("answer()")


def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(ControlError, match="'/nonexistent/rabbitmqctl eval' could not be run"):
        CommandControl(("/nonexistent/rabbitmqctl",)).evaluate("answer()")


def test_a_private_server_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ControlError, match=f"does not answer on {tmp_path}/control"):
        SocketControl(tmp_path / "control").evaluate("answer()")
