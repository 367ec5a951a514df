"""Workers, which run the engine's steps in a thread of the server (`thread_worker`) or in processes (all other files).

Both kinds implement the protocol in `app.engine.worker`.

early_start: starts the fork server before the settings are read, and decides the default number of workers.
fork_server: the server's objects for the fork server and for a worker process.
__main__, fork_server_main: the fork server. It loads what the workers share, forks each worker, and ends.
worker_main: a worker process, which runs the engine's loop over a socket.
worker_proxy: the server's side of a worker process.
messages, framing: the messages between the server and a worker process, and their frames.
shared_status: memory that all processes share.
model_spec: which model the fork server loads, and how.
"""
