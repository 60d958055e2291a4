"""Constraints: a program says which tokens may come next."""

import abc

import numpy as np
import numpy.typing as npt


class Constraint(abc.ABC):
    """Rules of one generation. Told of every token that is generated, asked before every choice.

    Along drafts it is asked and told ahead; tokens that come to nothing are taken back. The output is that
    without drafts if fill_mask() depends on the tokens alone. The methods are called by the thread that runs
    the generation's passes; what one raises ends the generation, and is raised where it was asked for.
    """

    @abc.abstractmethod
    def fill_mask(self, mask: npt.NDArray[np.uint32]) -> bool:
        """Sets bit id % 32 of mask[id // 32] for each token that may come next; all of them are 0 before.

        The array counts until the method returns. False: all tokens may come, whatever the mask says. A stop
        id is a token like others: without it the text goes on.
        """

    @abc.abstractmethod
    def advance(self, id: int) -> bool:
        """The next token is `id`. False if that may not come; nothing has changed then."""

    @abc.abstractmethod
    def roll_back(self, count: int) -> None:
        """Takes the last `count` tokens back."""
