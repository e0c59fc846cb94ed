"""TLS: what a certificate must be, what is said where it is not, and files that cannot be used."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pika
import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from queuey_rabbitmq.core.errors import InvalidConfigError
from queuey_rabbitmq.pika_link import PikaLink
from queuey_rabbitmq.pika_link.parameters import BrokerParameters, LinkSettings
from tests.unit.pika_link.conftest import Recorder

YEARS = timedelta(days=4000)


class Certificates:
    """Files of an authority and of what it has signed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.authority = trustme.CA()
        self.cacertfile = str(folder / "ca.pem")
        self.authority.cert_pem.write_to_path(self.cacertfile)

    def issue(self, name: str, file: str, **when: Any) -> str:
        """Return the file of a certificate with its key."""
        path = self._folder / file
        self.authority.issue_cert(name, **when).private_key_and_cert_chain_pem.write_to_path(str(path))
        return str(path)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("theirs"))


def speaks_tls(certfile: str, *, demands: str | None = None, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> Any:
    """Behave as a port that greets over TLS as RabbitMQ does, and demands a certificate of an authority or none."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=demands)
    context.maximum_version = newest
    context.load_cert_chain(certfile)
    context.verify_mode = ssl.CERT_REQUIRED if demands else ssl.CERT_NONE

    def behave(peer: socket.socket) -> None:
        with contextlib.closing(context.wrap_socket(peer, server_side=True)) as secured:
            secured.recv(8)
            start = pika.spec.Connection.Start(server_properties={}, mechanisms="PLAIN", locales="en_US")
            secured.sendall(pika.frame.Method(0, start).marshal())
            secured.recv(4096)
            close = pika.spec.Connection.Close(403, "that is all", 0, 0)
            secured.sendall(pika.frame.Method(0, close).marshal())
            secured.recv(4096)

    return behave


@pytest.fixture
def told(make_link: Callable[..., PikaLink], serve: Any, caplog: pytest.LogCaptureFixture) -> Callable[..., Any]:
    """Connect to a port that behaves so, and return the stage that was reached and what was said."""

    def told(behave: Any, query: str = "", *, host: str = "localhost", scheme: str = "amqps", **settings: Any) -> Any:
        lost = Recorder(make_link(f"{scheme}://{host}:{serve(behave)}/?{query}".rstrip("?"), **settings)).connect()
        return lost.stage, lost.text.partition(" (said by ")[0]

    return told


def test_a_certificate_that_is_signed_by_the_authority_and_bears_the_name_is_taken(told: Any, ours: Any) -> None:
    behave = speaks_tls(ours.issue("localhost", "good.pem"))
    assert told(behave, f"cacertfile={ours.cacertfile}") == ("logging in", "that is all")


def test_an_authority_that_is_not_known_is_not_trusted(told: Any, ours: Any, theirs: Any) -> None:
    for query in ("", f"cacertfile={theirs.cacertfile}"):
        stage, text = told(speaks_tls(ours.issue("localhost", "good.pem")), query)
        assert stage == "negotiating TLS"
        assert "is not trusted (unable to get local issuer certificate): name the authority" in text


def test_another_name_is_refused_unless_it_is_asked_for(told: Any, ours: Any) -> None:
    behave = speaks_tls(ours.issue("elsewhere", "elsewhere.pem"))
    stage, text = told(behave, f"cacertfile={ours.cacertfile}")
    assert stage == "negotiating TLS"
    assert "bears another name (Hostname mismatch, certificate is not valid for 'localhost')" in text
    told_of_ip = told(behave, f"cacertfile={ours.cacertfile}", host="127.0.0.1")
    assert "bears another name (IP address mismatch" in told_of_ip[1]
    expected = f"cacertfile={ours.cacertfile}&server_name_indication=elsewhere"
    assert told(behave, expected) == ("logging in", "that is all")


def test_a_certificate_out_of_date_is_refused(told: Any, ours: Any) -> None:
    now = datetime.now(UTC)
    old = ours.issue("localhost", "old.pem", not_before=now - YEARS, not_after=now - timedelta(days=1))
    young = ours.issue("localhost", "young.pem", not_before=now + timedelta(days=1), not_after=now + YEARS)
    for file, why in ((old, "certificate has expired"), (young, "certificate is not yet valid")):
        stage, text = told(speaks_tls(file), f"cacertfile={ours.cacertfile}")
        assert stage == "negotiating TLS"
        assert f"is out of date ({why}); whoever runs the broker renews it" in text


def test_without_verification_any_certificate_is_taken_and_the_log_warns(told: Any, ours: Any, caplog: Any) -> None:
    behave = speaks_tls(ours.issue("elsewhere", "elsewhere.pem"))
    assert told(behave, "verify=verify_none") == ("logging in", "that is all")
    assert "anyone can pose as it" in caplog.text


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_certificate_of_the_client_is_shown_where_it_is_demanded(
    told: Any, ours: Any, theirs: Any, newest: ssl.TLSVersion
) -> None:
    behave = speaks_tls(ours.issue("localhost", "good.pem"), demands=ours.cacertfile, newest=newest)
    query = f"cacertfile={ours.cacertfile}"
    client, stranger = ours.issue("client", "client.pem"), theirs.issue("client", "client.pem")
    assert told(behave, f"{query}&certfile={client}") == ("logging in", "that is all")
    for without in (query, f"{query}&certfile={stranger}"):
        _, text = told(behave, without)
        assert "certificate of the client" in text


def test_a_context_says_everything_about_tls_but_the_name(told: Any, ours: Any) -> None:
    context = ssl.create_default_context(cafile=ours.cacertfile)
    behave = speaks_tls(ours.issue("elsewhere", "elsewhere.pem"))
    assert "bears another name" in told(behave, ssl_context=context)[1]
    answer = told(behave, "server_name_indication=elsewhere", ssl_context=context)
    assert answer == ("logging in", "that is all")


def test_a_port_without_tls_says_so(told: Any) -> None:
    stage, text = told(lambda peer: (peer.recv(8), peer.sendall(b"AMQP\0\0\x09\x01"), peer.recv(4096)))
    assert stage == "negotiating TLS"
    assert "does not speak TLS: give the port for TLS, usually 5671, or a URL that begins with amqp://" in text


def test_a_port_for_tls_that_is_spoken_to_without_says_so(told: Any, ours: Any) -> None:
    def behave(peer: socket.socket) -> None:
        with contextlib.suppress(ssl.SSLError), contextlib.closing(peer):
            speaks_tls(ours.issue("localhost", "good.pem"))(peer)

    stage, text = told(behave, scheme="amqp")
    assert stage == "waiting for an AMQP answer"
    assert text.endswith("is this the port of a RabbitMQ? Where it is one for TLS, the URL begins with amqps://")


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("cacertfile={folder}/missing.pem", r"cacertfile=.*/missing.pem cannot be read \(No such file"),
        ("cacertfile={folder}", r"cacertfile=.* cannot be read \(Is a directory"),
        ("cacertfile={empty}", r"cacertfile=.*/empty.pem holds no certificates"),
        ("certfile={folder}/missing.pem", r"certfile=.*/missing.pem cannot be read"),
        ("certfile={good}&keyfile={folder}/missing.pem", r"keyfile=.*/missing.pem cannot be read"),
        ("certfile={empty}", r"certfile=.*/empty.pem is no certificate in PEM"),
        ("certfile={good}&keyfile={other}", r"other.pem not its key.*KEY_VALUES_MISMATCH"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(ours: Any, tmp_path: Path, query: str, reason: str) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    files = {name: ours.issue("localhost", f"{name}.pem") for name in ("good", "other")}
    with pytest.raises(InvalidConfigError, match=reason):
        BrokerParameters(LinkSettings(url=f"amqps://host?{query.format(folder=tmp_path, empty=empty, **files)}"))


def test_an_encrypted_key_is_opened_with_its_password_alone_and_nobody_is_asked(ours: Any, tmp_path: Path) -> None:
    plain = serialization.load_pem_private_key(Path(good := ours.issue("client", "good.pem")).read_bytes(), None)
    how = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    key = tmp_path / "key.pem"
    key.write_bytes(plain.private_bytes(*how, serialization.BestAvailableEncryption(b"sw0rdfish &")))
    url = f"amqps://host?certfile={good}&keyfile={key}"
    assert BrokerParameters(LinkSettings(url=f"{url}&password=sw0rdfish%20%26")).nodes[0].tls
    for wrong in ("", "&password=sw0rdfish"):
        with pytest.raises(InvalidConfigError, match=r"key.pem not its key, or encrypted otherwise") as refusal:
            BrokerParameters(LinkSettings(url=url + wrong))
        assert "sw0rdfish" not in str(refusal.value)


def test_a_context_without_tls_or_beside_certificates_is_refused(ours: Any) -> None:
    context = ssl.create_default_context()
    with pytest.raises(InvalidConfigError, match="amqp://, which speaks no TLS"):
        BrokerParameters(LinkSettings(url="amqp://host", ssl_context=context))
    with pytest.raises(InvalidConfigError, match="described twice"):
        BrokerParameters(LinkSettings(url=f"amqps://host?cacertfile={ours.cacertfile}", ssl_context=context))
