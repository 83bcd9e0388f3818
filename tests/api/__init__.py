"""The HTTP side, over real sockets."""
