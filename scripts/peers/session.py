"""What all peers share: their options, the ONNX Runtime session, and rows as bytes for those that speak plain HTTP."""
import argparse

import numpy as np

# One situation of encoding otter/1 as a request carries it: 4,820 bytes, little-endian, without gaps.
ROW = np.dtype([
    ("board", "<f4", (18, 8, 8)),
    ("history", "<i8", (20,)),
    ("history_mask", "?", (20,)),
    ("mover_elo", "<i8"),
    ("opponent_elo", "<i8"),
    ("time_control", "<i8"),
    ("clock", "<f4", (2,)),
])
POLICY = 4208
OUTPUTS = ["policy", "value"]


def arguments():
    """The options of every peer; a worker process that is started anew reads them again from the same command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="ONNX file")
    parser.add_argument("--port", type=int, required=True, help="on 127.0.0.1")
    parser.add_argument("--workers", type=int, default=2, help="sessions that run at the same time")
    parser.add_argument("--threads", type=int, default=1, help="threads of each session")
    parser.add_argument("--max-batch", type=int, default=8)
    parser.add_argument("--capacity", type=int, default=256, help="requests held before more are turned away")
    parser.add_argument("--timeout", type=int, default=10_000, help="milliseconds that a request may wait")
    return parser.parse_args()


class Session:
    """An ONNX Runtime session set as the server of this project sets its own."""

    def __init__(self, model, threads):
        # Here, so that a process without a session of its own does not hold the library in memory.
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def run(self, inputs):
        """Arrays by name, batch axis first, to policy [B, 4208] and value [B]."""
        return self.session.run(OUTPUTS, inputs)

    def answer(self, rows):
        """One request's bytes each to one answer's bytes each: policy, then value, as 4,209 little-endian f32."""
        batch = np.frombuffer(b"".join(rows), ROW)
        policy, value = self.run({name: np.ascontiguousarray(batch[name]) for name in ROW.names})
        return [answer.tobytes() for answer in np.hstack([policy, value.reshape(-1, 1)])]
