# expect: crashed|compile_error
# It imports a package that is not there.
# Fools a harness that installs what a program names, or counts the failure as an outage.
import not_a_package_of_this_world


def softmax(x, y, rows, columns):
    not_a_package_of_this_world.softmax(x, y)
