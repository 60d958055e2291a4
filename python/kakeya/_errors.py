"""Errors of the engine: a class for each status code, with the engine's one line as the message."""

import re


class Error(Exception):
    """An error of the engine; its classes say which."""


class Cancelled(Error):
    """The call was ended by its caller."""


class InvalidArgument(Error, ValueError):
    """A value out of range, or a file of another form than expected."""


class DeadlineExceeded(Error, TimeoutError):
    """The time that was given is over."""


class NotFound(Error, FileNotFoundError):
    """A file or folder is not there."""


class ResourceExhausted(Error, MemoryError):
    """A limit would be passed: memory, or the context."""


class FailedPrecondition(Error):
    """The call does not fit the state: a session that is busy, a model without a tokenizer."""


class Unimplemented(Error, NotImplementedError):
    """A file uses what the engine does not support."""


class Internal(Error):
    """A fault of the engine."""


class Unavailable(Error):
    """A device or the disk refuses."""


class DataLoss(Error):
    """A file is damaged, or numbers are not finite."""


_BY_CODE = {
    1: Cancelled, 3: InvalidArgument, 4: DeadlineExceeded, 5: NotFound, 8: ResourceExhausted,
    9: FailedPrecondition, 12: Unimplemented, 13: Internal, 14: Unavailable, 15: DataLoss,
}
# The engine names its options as C++ does.
_OPTION = re.compile(r"\b(?:Engine|Session|Generate|Sampling|Draft|Scheduler|Text)Options::(\w+)")
_OTHER_NAMES = {"model_dir": "model", "num_threads": "threads", "source": "draft", "stop_strings": "stop",
                "max_sequences": "at_once"}


def error_of(code: int, message: bytes) -> Error:
    text = message.decode("utf-8", "replace")
    text = _OPTION.sub(lambda option: _OTHER_NAMES.get(option[1], option[1]), text)
    return _BY_CODE[code](text)
