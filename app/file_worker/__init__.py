"""Files are read and written in processes of their own, with little memory and time, which can be ended at any moment.

The server never looks into a file: `workers` sends its bytes to a process, `__main__` is that process, and `messages`
is what they say to each other, MessagePack with a type for every message. Nothing is ever unpickled.
"""
