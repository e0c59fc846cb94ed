"""Owns what is asked of a RabbitMQ node from inside: making and deleting virtual hosts, looking at queues.

Looking renews no lease and moves no message, unlike a passive declare (rabbit_amqqueue_process: handle_call of `stat`
re-arms the expiry timer, `info` does not). Refuses to touch a virtual host that it is not given.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pytest_queuey.node_control import NodeControl

_LOOK: Final = """
Look = fun(Queue) ->
    try
        [{name, {resource, _, queue, Name}}, {messages_ready, Ready}, {messages_unacknowledged, Unacked},
         {consumers, Consumers}, {arguments, Arguments}] =
            rabbit_amqqueue:info(Queue, [name, messages_ready, messages_unacknowledged, consumers, arguments]),
        Count = fun(Metric, Query) ->  % a quorum queue's metrics are seconds old
            case amqqueue:get_type(Queue) of
                rabbit_quorum_queue ->
                    Leader = amqqueue:get_pid(Queue),
                    {ok, {_, Number}, _} =
                        try ra:leader_query(Leader, fun(State) -> rabbit_fifo:Query(State) end)
                        catch error:function_clause -> ra:leader_query(Leader, {rabbit_fifo, Query, []}) end,  % 4.3
                    Number;
                _ -> Metric
            end
        end,
        [#{name => Name, ready => Count(Ready, query_messages_ready),
           unacked => Count(Unacked, query_messages_checked_out), consumers => Consumers,
           arguments => rabbit_misc:amqp_table(Arguments)}]
    catch exit:_ -> []  % its process ended between the look-up and the question: it is gone
    end
end"""
"""An Erlang function from a queue to a list of what it is like, empty where it is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """One queue of a real broker, as it is at this moment."""

    name: str
    ready: int
    unacked: int
    consumers: int
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """One RabbitMQ node, asked from inside; raises ControlError where it cannot be."""

    control: NodeControl

    def make_vhosts(self, names: Sequence[str], *, user: str) -> None:
        """Make virtual hosts in which the user may do everything."""
        self.control.evaluate(
            f"""lists:foreach(fun(VHost) ->
                ok = rabbit_vhost:add(VHost, <<"queuey">>),
                ok = rabbit_auth_backend_internal:set_permissions(
                    {_binary(user)}, VHost, <<".*">>, <<".*">>, <<".*">>, <<"queuey">>)
            end, {_list(names)}), <<"made">>"""
        )

    def restart(self) -> None:
        """Stop and start RabbitMQ in the running node, as `rabbitmqctl stop_app` and `start_app` do."""
        self.control.evaluate('rabbit:stop(), ok = rabbit:start(), <<"started">>')

    def delete_vhosts(self, names: Sequence[str]) -> None:
        """Delete virtual hosts and everything in them; those that are not there are passed over."""
        self.control.evaluate(
            f"""lists:foreach(fun(VHost) ->
                rabbit_vhost:exists(VHost) andalso rabbit_vhost:delete(VHost, <<"queuey">>)
            end, {_list(names)}), <<"deleted">>"""
        )

    def delete_vhosts_named(self, prefix: str) -> None:
        """Delete every virtual host whose name starts with the prefix, which only this run uses."""
        self.control.evaluate(
            f"""Prefix = {_binary(prefix)},
            lists:foreach(fun(VHost) ->
                string:prefix(VHost, Prefix) =:= nomatch orelse rabbit_vhost:delete(VHost, <<"queuey">>)
            end, rabbit_vhost:list_names()), <<"deleted">>"""
        )

    def vhosts(self) -> list[str]:
        """Return the names of all virtual hosts."""
        names: list[str] = json.loads(self.control.evaluate("rabbit_json:encode(rabbit_vhost:list_names())"))
        return names

    def queues(self, vhost: str) -> list[QueueState]:
        """Return every queue of a virtual host, by name."""
        return self._look(f"lists:flatmap(Look, rabbit_amqqueue:list({_binary(vhost)}))")

    def queue(self, vhost: str, name: str) -> QueueState | None:
        """Return one queue, or None where there is none."""
        found = self._look(
            f"""case rabbit_amqqueue:lookup(rabbit_misc:r({_binary(vhost)}, queue, {_binary(name)})) of
                {{ok, Queue}} -> Look(Queue);
                {{error, not_found}} -> []
            end"""
        )
        return found[0] if found else None

    def _look(self, expression: str) -> list[QueueState]:
        answer = json.loads(self.control.evaluate(f"{_LOOK}, rabbit_json:encode({expression})"))
        return sorted((QueueState(**fields) for fields in answer), key=lambda queue: queue.name)


def _binary(text: str) -> str:
    # In base64 no name can break out of the expression, whatever it is made of.
    return f'base64:decode(<<"{base64.b64encode(text.encode()).decode()}">>)'


def _list(texts: Sequence[str]) -> str:
    return f"[{', '.join(_binary(text) for text in texts)}]"
