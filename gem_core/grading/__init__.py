"""Graders: math, question answering, code. Each is a plain function from texts to a verdict."""
