"""What can keep an evaluation from happening at all. Standard library only: the worker raises these too."""

from __future__ import annotations


class TaskError(ValueError):
    """A task cannot be used; the message names the file and the key."""


class EvaluatorUnavailable(Exception):
    """No verdict could be reached and none was spent: the device or the worker is away. The run parks."""


class WorkFailed(EvaluatorUnavailable):
    """The trusted process had loaded its task and failed, or its device did, while it was at work on a request."""
