"""A run in the formats of other programs: ONNX, TensorBoard and MLflow."""
