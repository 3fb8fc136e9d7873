"""Serves a model through NVIDIA Triton (tritonserver with PyTriton's Python backend). KServe v2 over HTTP; full: 503.

POST /v2/models/zeitnot/infer; GET /v2/models/zeitnot/ready answers 200 once the model is. SIGTERM ends all processes.
"""
import signal

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, QueuePolicy, Tensor
from pytriton.triton import Triton, TritonConfig

from session import POLICY, ROW, Session, arguments


def tensor(name):
    # Triton has no input without a dimension besides the batch's, so a number of a row is [1].
    base, shape = ROW[name].subdtype or (ROW[name], (1,))
    return Tensor(name=name, dtype=base.type, shape=shape)


def instance(options):
    session = Session(options.model, options.threads)

    @batch
    def infer(**inputs):
        policy, value = session.run({name: rows.reshape(-1, *ROW[name].shape) for name, rows in inputs.items()})
        return {"policy": policy, "value": value.reshape(-1, 1)}

    return infer


if __name__ == "__main__":
    options = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    queue = QueuePolicy(max_queue_size=options.capacity, default_timeout_microseconds=options.timeout * 1000)
    with Triton(config=TritonConfig(
        http_address="127.0.0.1", http_port=options.port, allow_grpc=False, allow_metrics=False,
    )) as triton:
        triton.bind(
            model_name="zeitnot",
            infer_func=[instance(options) for _ in range(options.workers)],
            inputs=[tensor(name) for name in ROW.names],
            outputs=[
                Tensor(name="policy", dtype=np.float32, shape=(POLICY,)),
                Tensor(name="value", dtype=np.float32, shape=(1,)),
            ],
            config=ModelConfig(
                max_batch_size=options.max_batch, batcher=DynamicBatcher(default_queue_policy=queue),
            ),
            strict=False,
        )
        triton.serve()
