# expect: compile_error|crashed
# The entry point is a number.
# Fools a harness that tests with hasattr.
softmax = 42
