"""The one error family: a sentence that says what happened, then what to do next."""


class InferenceError(Exception):
    """A fault told in plain words; `str(error)` is shown to the person, the trace goes to the log."""


class Refused(InferenceError):
    """A load that was not begun because it could not succeed (it does not fit, no such device, a locked model)."""


class OutOfMemory(InferenceError):
    """A load that was begun and found too little memory; the files it read are not to blame."""


class WrongArguments(InferenceError):
    """Arguments or settings that can't be used, told before anything starts; a command ends with 2, for any other fault with 1."""


class DeviceLost(InferenceError):
    """The device (a CUDA context) is past use in this process: only a new process can answer."""


DEVICE_LOST_CODE = 70  # with which a lane's process ends where its device is past use
UNEXPECTED = "This lane failed unexpectedly ({}); the log has the trace. Ask again, or run `python -m inference doctor`."
