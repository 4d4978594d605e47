"""Models that leave: networks of a finished run as plain torch and ONNX, and their predictions."""
