"""What a real broker's URL says to the plugin is what it says in production."""

from pytest_queuey.sources.server import RealServer
from pytest_queuey.sources.url import without_password
from queuey_rabbitmq import broker_urls

URL = "amqps://a%40b:s%2Fecret@one:1,[::1],three/v%2f1?cacertfile=ca.pem&certfile=me.pem&password=secret"


def test_a_virtual_host_of_a_test_is_on_the_same_nodes_over_the_same_tls() -> None:
    server = RealServer(source="url", what="it", url=URL)
    assert (server.user, server.vhost) == ("a@b", "v/1")
    other = broker_urls.parse(server.vhost_url("queuey-1/2 é"))
    assert {node.virtual_host for node in other} == {"queuey-1/2 é"}
    said = [(node.host, node.port, node.user, node.password, node.tls) for node in broker_urls.parse(URL)]
    assert [(node.host, node.port, node.user, node.password, node.tls) for node in other] == said


def test_nothing_secret_of_a_url_is_printed() -> None:
    assert without_password(URL) == "amqps://a%40b@one:1,[::1]:5671,three:5671/v%2f1"
