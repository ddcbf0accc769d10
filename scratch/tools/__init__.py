"""The verbs as a model sees them: definitions with a JSON Schema, and calls that always return text.

A model's call never raises: bad arguments, unknown handles, a locked file and bugs of our own all come back as one
compact JSON object ``{"error": code, "message": …}`` that says what to do next.
"""

from scratch.tools.definition import CLIENTS, GROUPS, Client, Group, Parameter, Verb
from scratch.tools.toolset import Toolset
from scratch.tools.verbs import VERBS

__all__ = ["CLIENTS", "GROUPS", "VERBS", "Client", "Group", "Parameter", "Toolset", "Verb"]
