"""Serves a model through LitServe: FastAPI in front, worker processes in Python. POST /predict; full: 503.

It has no queue limit of its own: the capacity is uvicorn's, on connections, idle ones included.
GET /health answers 200 once every worker is ready. SIGTERM ends all processes.
"""
import signal
from typing import Annotated

import fastapi
import litserve

from session import ROW, Session, arguments


class Api(litserve.LitAPI):
    """The steps of a request; all but the HTTP run in a worker process with its own session."""

    def __init__(self, options):
        # A worker polls the queue, which a third process holds: without a timeout it never pauses and takes processor
        # time from the model, with a longer one it waits for batches that do not fill.
        super().__init__(max_batch_size=options.max_batch, batch_timeout=0.001)
        self.options = options

    def setup(self, device):
        self.session = Session(self.options.model, self.options.threads)

    def decode_request(self, request: Annotated[bytes, fastapi.Body()]):
        if len(request) != ROW.itemsize:
            raise fastapi.HTTPException(422, f"a row has {ROW.itemsize} bytes, not {len(request)}")
        return request

    def predict(self, rows):
        return self.session.answer(rows)

    def encode_response(self, answer):
        return fastapi.Response(answer, media_type="application/octet-stream")


if __name__ == "__main__":
    options = arguments()
    # LitServe hangs on an exit that is not an interrupt, when it closes its queues.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    server = litserve.LitServer(
        Api(options),
        accelerator="cpu",
        workers_per_device=options.workers,
        timeout=options.timeout / 1000,
        fast_queue=True,
    )
    server.run(
        host="127.0.0.1",
        port=options.port,
        num_api_servers=1,
        log_level="warning",
        generate_client_file=False,
        limit_concurrency=options.capacity,
    )
