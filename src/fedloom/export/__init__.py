"""Models that leave: a finished run's networks as plain torch and ONNX, and what they say of new samples."""
