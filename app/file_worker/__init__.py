"""File workers: processes that read and write files. They have little memory and CPU time, and may be killed anytime.

The server process never parses a file. `workers` sends its bytes to a worker process, `__main__` is that process, and
`messages` defines the messages between them: MessagePack with a type per message. Nothing is unpickled.
"""
