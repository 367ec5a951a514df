"""What runs the engine's steps: a thread of the server (`thread_worker`), or processes (all other files).

The setting TRANSDUCE_NUM_LANES is the number of workers. `app.engine.worker` holds the protocol that both kinds obey.

early_start: starts the fork server before the settings are read, and decides how many workers there are by default.
fork_server: the server's handles of the fork server and of a worker process.
__main__, fork_server_main: the fork server itself: load the model, fork once for each worker, end.
worker_main: a worker process: the engine's loop over a socket. worker_proxy: the server's side of a worker process.
messages, framing: what the two say to each other, and how it is cut into frames.
shared_status: memory that all of them share. model_spec: what the fork server loads.
"""
