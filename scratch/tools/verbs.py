"""All verbs, in the order in which a model is told of them."""

from scratch.tools.definition import Verb
from scratch.tools.documents import ARTIFACTS
from scratch.tools.exploring import EXPLORING
from scratch.tools.notes import NOTES, READ_HANDLE

VERBS: tuple[Verb, ...] = (READ_HANDLE, *EXPLORING, *NOTES, *ARTIFACTS)
