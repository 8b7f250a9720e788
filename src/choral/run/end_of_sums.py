"""The end of a run whose model is made from sums: all of them are there, and its folder gets a result."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from choral.asking.fitting import FittedModel
from choral.record import Measured, ModelCard
from choral.run.answers import AskedAnswer
from choral.run.folder import RunFolder
from choral.run.inquiry import Inquiry
from choral.run.places import PLACES
from choral.run.runs import Run
from choral.run.sum_study import question_of
from choral.run.watch import Watch, unwatched


def made(inquiry: Inquiry, *, watch: Watch = unwatched) -> AskedAnswer:
    """The model that the job names, sum by sum; the run folder then has its result, signed as that of a training."""
    answered = inquiry.ask(question_of(inquiry.study.job), watch=watch)
    _EndOfSums(inquiry, answered).write_result()
    return answered


class _EndOfSums(Run):
    """A run that has all sums of its model: nothing is trained, so it ends without a round."""

    stopped = "all sums of the model are made"
    _stopped_by_choice = False  # all sums that may be asked for are in the statement

    def __init__(self, inquiry: Inquiry, answered: AskedAnswer) -> None:
        place = PLACES[inquiry.kind](inquiry.study, folder=inquiry.folder, drop=inquiry.drop)
        super().__init__(place, inquiry.study, folder=RunFolder(inquiry.folder))
        assert answered.model is not None  # noqa: S101 - what was asked for is a model
        self.model: FittedModel = answered.model
        self.figures = dict(answered.figures)

    @property
    def parameters(self) -> NDArray[np.float32]:
        """The state of the model."""
        return self.model.state.astype(np.float32)

    def merits(self) -> tuple[dict[str, float], Measured | None]:
        """What the model reaches on test rows."""
        return {name: round(value, 6) for name, value in self.figures.items()}, None

    def card(self) -> ModelCard:
        """What names the numbers of the state; its question says which columns they belong to."""
        shape = self.shape()
        return msgspec.structs.replace(super().card(), kind=shape.kind, widths=(), parameters=shape.parameters)
