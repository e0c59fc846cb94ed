"""The traces: for each test on the broker in memory a page that shows what became of its messages, and an index.

Loaded only where `--queuey-trace` asks for it. Refuses to know any rule of a broker: the journal has noted everything.
"""
