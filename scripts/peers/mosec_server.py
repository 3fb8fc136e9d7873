"""Serves a model through Mosec: a front end in Rust, worker processes in Python. POST /inference; full: 429.

GET / answers as soon as the front end listens, so only an answered request says that a worker is ready.
SIGTERM ends the front end and the workers.
"""
import os

import mosec

from session import ROW, Session, arguments


class Worker(mosec.Worker):
    """A process of its own, with its own session."""

    resp_mime_type = "application/octet-stream"

    def __init__(self):
        super().__init__()
        options = arguments()
        self.session = Session(options.model, options.threads)

    def deserialize(self, data):
        if len(data) != ROW.itemsize:
            raise mosec.ValidationError(f"a row has {ROW.itemsize} bytes, not {len(data)}")
        return data

    def forward(self, rows):
        return self.session.answer(rows)

    def serialize(self, answer):
        return answer


if __name__ == "__main__":
    options = arguments()
    # Mosec has its options from the environment too, which leaves this program's own command line alone.
    os.environ |= {
        "MOSEC_ADDRESS": "127.0.0.1",
        "MOSEC_PORT": str(options.port),
        "MOSEC_CAPACITY": str(options.capacity),
        "MOSEC_TIMEOUT": str(options.timeout),
        "MOSEC_LOG_LEVEL": "warning",
    }
    server = mosec.Server()
    # One millisecond is the least that Mosec waits for a batch to fill.
    server.append_worker(Worker, num=options.workers, max_batch_size=options.max_batch, max_wait_time=1)
    server.run()
