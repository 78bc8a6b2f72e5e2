"""What the services run in: an event loop whose clock jumps, processes that can be killed, a network, a disk."""
