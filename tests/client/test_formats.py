import json
from collections.abc import Iterator
from datetime import datetime
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, get_args

import anthropic.types
import google.genai.types as google_types
import openai.types.chat
import openai.types.responses
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, EmailStr, Field, RootModel, TypeAdapter

from ors.client.formats import Provider, ToolInvocation, convert_tool_response, convert_tools, parse_tool_call
from ors.errors import ToolCallError
from ors.types import ToolSpec
