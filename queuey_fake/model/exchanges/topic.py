"""Topic exchanges: words between dots, `*` for one word and `#` for any number of them.

Owns a trie of the bindings' words, as rabbit_db_topic_exchange does, so that a match costs by the words of the key and
not by the number of bindings. The empty key has no words; between two dots is an empty word (scenario xtopic_matrix).
"""

from collections.abc import Collection, Iterable, Sequence

from queuey_fake.model import errors
from queuey_fake.model.bindings import Binding, Destination
from queuey_fake.model.fields import Table


def words_of(key: str) -> list[str]:
    """Return the words of a routing key or a binding's pattern."""
    return key.split(".") if key else []


class _Node:
    """One word of the patterns, below the words before it."""

    __slots__ = ("children", "destinations", "is_hash")

    def __init__(self, word: str) -> None:
        self.is_hash = word == "#"
        self.children: dict[str, _Node] = {}
        self.destinations: dict[Binding, Destination] = {}


class TopicMatcher:
    """The trie of the patterns."""

    def __init__(self, *, max_hashes: int | None = None) -> None:
        self._max_hashes = max_hashes
        self._root = _Node("")

    def check(self, binding: Binding, queue_type: str | None) -> None:  # noqa: ARG002  a matcher's signature
        """Refuse a key with more `#` than this RabbitMQ takes (rabbit_exchange_type_topic:validate_binding)."""
        hashes = words_of(binding.routing_key).count("#")
        if self._max_hashes is not None and hashes > self._max_hashes:
            raise errors.too_many_hashes(binding.routing_key, hashes, self._max_hashes)

    def add(self, binding: Binding) -> None:
        """Take a new binding into account."""
        node = self._root
        for word in words_of(binding.routing_key):
            node = node.children.setdefault(word, _Node(word))
        node.destinations[binding] = binding.destination

    def remove(self, binding: Binding) -> None:
        """Forget a binding that was added, and the words that only it had."""
        path = [self._root]
        words = words_of(binding.routing_key)
        for word in words:
            path.append(path[-1].children[word])
        del path[-1].destinations[binding]
        for word, parent, node in zip(reversed(words), reversed(path[:-1]), reversed(path), strict=False):
            if node.children or node.destinations:
                break
            del parent.children[word]

    def match(self, routing_keys: Sequence[str], headers: Table | None) -> Collection[Destination]:  # noqa: ARG002  a matcher's signature
        """Return the destinations of the patterns that match one of the keys."""
        return [
            destination
            for key in routing_keys
            for node in self._nodes(key)
            for destination in node.destinations.values()
        ]

    def _nodes(self, routing_key: str) -> Iterable[_Node]:
        # All nodes that the words so far lead to, in the order in which they were found. Each is there once, however
        # many ways lead to it, so that no pattern makes them many.
        nodes = dict.fromkeys(_with_hashes([self._root]))
        for word in words_of(routing_key):
            nodes = dict.fromkeys(_with_hashes(_after(nodes, word)))
        return nodes


def _with_hashes(nodes: Iterable[_Node]) -> Iterable[_Node]:
    """Add the nodes that a `#` reaches with no word."""
    for reached in nodes:
        node: _Node | None = reached
        while node is not None:
            yield node
            node = node.children.get("#")


def _after(nodes: Iterable[_Node], word: str) -> Iterable[_Node]:
    """Return the nodes that one more word leads to; that of a `#` leads to itself."""
    for node in nodes:
        if node.is_hash:
            yield node
        if word in node.children and word not in ("*", "#"):
            yield node.children[word]
        if "*" in node.children:
            yield node.children["*"]
