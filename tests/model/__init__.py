"""The rules of conversation memory as a model, and a machine that holds the product against it step by step."""
