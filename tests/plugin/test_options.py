import pytest


def test_help_groups_every_option_with_its_ini(run_pytest: pytest.Pytester) -> None:
    result = run_pytest.runpytest_inprocess("--help")
    lines = [line.strip() for line in result.outlines]
    assert "queuey: job queues on a RabbitMQ in memory or on a real one:" in lines
    flags = [line.split("=")[0] for line in lines if line.startswith("--queuey-") and "=" in line]
    assert flags == [
        "--queuey-broker",
        "--queuey-backend",
        "--queuey-rabbitmq-source",
        "--queuey-rabbitmq-url",
        "--queuey-rabbitmq-ctl",
        "--queuey-rabbitmq-server",
        "--queuey-rabbitmq-image",
        "--queuey-max-real-wait",
        "--queuey-wait-guard",
        "--queuey-losses",
        "--queuey-foreign-losses",
        "--queuey-trace",
    ]
    inis = [line.split(" ")[0] for line in lines if line.startswith("queuey_") and "(string)" in line]
    assert inis == [flag[2:].replace("-", "_") for flag in flags]


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        (
            "--queuey-broker=real",
            "it must be fake, rabbitmq, auto, all, or several with commas *",
        ),
        ("--queuey-broker=fake-3.9", "it must be fake, *: fake-3.10, fake-4.0, fake-4.3, rabbitmq-VERSION"),
        ("--queuey-broker=fake,", "it must be fake, *"),
        ("--queuey-broker=fake,fake-4.3", "it names a broker twice: fake-4.3, fake-4.3"),
        ("--queuey-backend=mypackage", "it must be MODULE:CLASS"),
        ("--queuey-backend=nosuchmodule:Mine", "the module cannot be imported: No module named 'nosuchmodule'"),
        ("--queuey-backend=json:Mine", "json (*) has no callable Mine"),
        ("--queuey-rabbitmq-source=podman", "it must be one of auto, url, local, docker"),
        ("--queuey-rabbitmq-ctl='", "No closing quotation"),
        ("--queuey-max-real-wait=soon", "it must be a number of seconds"),
        ("--queuey-max-real-wait=-1", "it must be a number of seconds above 0"),
        ("--queuey-wait-guard=nan", "it must be a number of seconds above 0"),
        ("--queuey-losses=warn", "it must be one of fail, report, ignore"),
        ("--queuey-foreign-losses=warn", "it must be one of fail, report, ignore"),
    ],
)
def test_a_bad_value_is_a_usage_error_that_names_the_option(
    run_pytest: pytest.Pytester, option: str, problem: str
) -> None:
    result = run_pytest.runpytest_inprocess(option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {option}: {problem}"])


def test_a_bad_value_in_the_ini_is_a_usage_error_that_names_the_ini(run_pytest: pytest.Pytester) -> None:
    run_pytest.makeini("[pytest]\nqueuey_broker = real")
    result = run_pytest.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: ini queuey_broker=real: it must be fake, rabbitmq, auto, all, or several *"])


def test_a_bad_url_in_the_environment_is_a_usage_error_that_names_the_variable(
    run_pytest: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUEY_RABBITMQ_URL", "http://localhost")
    result = run_pytest.runpytest_inprocess()
    result.stderr.fnmatch_lines(["ERROR: QUEUEY_RABBITMQ_URL: *: it begins with neither amqp:// nor amqps:// *"])


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("secret@localhost:5672", "it begins with neither amqp:// nor amqps://"),
        ("amqp://me:secret@a:5672,b:99999/", "a port is not from 1 to 65535"),
        ("amqps://me:secret@a/?cafile=x", "there is no parameter cafile; there are .*cacertfile"),
    ],
)
def test_a_bad_url_is_not_shown_as_it_may_hold_a_password(run_pytest: pytest.Pytester, url: str, problem: str) -> None:
    with pytest.raises(pytest.UsageError, match=f"^--queuey-rabbitmq-url: .*: {problem}") as error:
        run_pytest.parseconfigure(f"--queuey-rabbitmq-url={url}")
    assert "secret" not in str(error.value)


def test_the_command_line_wins_over_the_environment_and_that_over_the_ini(
    run_pytest: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chosen(*options: str) -> str:
        result = run_pytest.runpytest_inprocess("--queuey-broker=auto", "--collect-only", *options)
        return next(line for line in result.outlines if line.startswith("queuey: rabbitmq is "))

    run_pytest.makeini("[pytest]\nqueuey_rabbitmq_url = amqp://user:secret@ini/")
    assert chosen() == "queuey: rabbitmq is the one at amqp://user@ini:5672/"
    monkeypatch.setenv("QUEUEY_RABBITMQ_URL", "amqp://environment")
    assert chosen().endswith("the one at amqp://environment:5672")
    assert chosen("--queuey-rabbitmq-url=amqp://flag:1/v").endswith("the one at amqp://flag:1/v")
    url = "amqps://me:secret@a,b:1,[::1]/v?certfile=c&password=secret"
    assert chosen(f"--queuey-rabbitmq-url={url}").endswith("the one at amqps://me@a:5671,b:1,[::1]:5671/v")


def test_native_toml_configuration_is_read(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyprojecttoml("[tool.pytest.ini_options]\nqueuey_broker = 'real'")
    result = run_pytest.runpytest_inprocess()
    result.stderr.fnmatch_lines(["ERROR: ini queuey_broker=real: *"])


@pytest.mark.skipif(pytest.version_tuple < (9,), reason="pytest has a strict mode since 9")
def test_it_runs_in_pytests_strict_mode(run_pytest: pytest.Pytester) -> None:
    run_pytest.makeini("[pytest]\nstrict = true\nqueuey_broker = fake-3.10,fake-4.3")
    run_pytest.makepyfile(
        """
        import pytest
        @pytest.mark.queuey_broker("fake")
        @pytest.mark.queuey_expect_loss(reason="expired")
        @pytest.mark.queuey_needs("holds")
        def test_it(queuey_broker): pass
        """
    )
    run_pytest.runpytest_inprocess().assert_outcomes(passed=2)


def test_a_run_on_the_fake_alone_says_nothing_in_the_header(run_pytest: pytest.Pytester) -> None:
    result = run_pytest.runpytest_inprocess("--collect-only")
    result.stdout.no_fnmatch_line("queuey:*")
