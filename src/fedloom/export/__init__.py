"""Exporting the networks of a finished run as plain torch, ONNX or ExecuTorch; predicting."""
