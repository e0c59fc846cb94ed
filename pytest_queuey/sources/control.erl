%% Evaluates what our test run asks for, inside the private server it started: virtual hosts are made and queues are
%% looked at in a millisecond, where a rabbitmqctl takes half a second and renews nothing either.
%% It listens on a socket file in the server's own folder, which only the user who runs the tests can reach.
%% A request is Erlang expressions whose value is iodata; the answer is "+" and that, or "-" and what went wrong.
{ok, Listener} = gen_tcp:listen(0, [binary, {packet, 4}, {active, false}, {backlog, 64},
                                    {ifaddr, {local, os:getenv("HOME") ++ "/control"}}]),
Evaluate = fun(Text) ->
    try
        {ok, Tokens, _} = erl_scan:string(unicode:characters_to_list(Text)),
        {ok, Expressions} = erl_parse:parse_exprs(Tokens),
        {value, Value, _} = erl_eval:exprs(Expressions, []),
        [<<"+">>, Value]
    catch Kind:Reason -> [<<"-">>, unicode:characters_to_binary(io_lib:format("~0tp: ~0tp", [Kind, Reason]))]
    end
end,
Answer = fun Answer(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Text} -> gen_tcp:send(Socket, Evaluate(Text)), Answer(Socket);
        {error, _} -> gen_tcp:close(Socket)
    end
end,
Accept = fun Accept() ->
    {ok, Socket} = gen_tcp:accept(Listener),
    Served = spawn(fun() -> receive go -> Answer(Socket) end end),
    ok = gen_tcp:controlling_process(Socket, Served),
    Served ! go,
    Accept()
end,
Owner = spawn(fun() -> receive go -> Accept() end end),
ok = gen_tcp:controlling_process(Listener, Owner),
Owner ! go.
