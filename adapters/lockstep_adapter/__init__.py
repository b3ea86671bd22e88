"""Puts a training engine behind lockstep's engine protocol, so that lockstep can judge it (docs/engine-protocol.md)."""
from .feed import Document, Feed, pack_rows, slots_in_use
from .tensors import Tensor, read_file, write_file
from .wire import Failed, Recorder, Request, Skipped, serve

__version__ = "0.1.0"
__all__ = ["Document", "Failed", "Feed", "Recorder", "Request", "Skipped", "Tensor", "pack_rows", "read_file", "serve",
           "slots_in_use", "write_file"]
