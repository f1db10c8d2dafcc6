"""The parameters of an environment class: its pydantic model `Config`, and their values, `config`."""

from collections.abc import Mapping
from inspect import getattr_static, isclass
from typing import Any, Literal

from pydantic import BaseModel, PydanticUserError, ValidationError
from pydantic_core import PydanticSerializationError

from ors.errors import InvalidEnvironment


def model_of(cls: type) -> type[BaseModel] | None:
    """The model of the parameters; None if a class has none, or uses one of the two names for its own."""
    found, now = getattr_static(cls, "Config", None), getattr_static(cls, "config", None)
    is_model = isclass(found) and issubclass(found, BaseModel) and isinstance(now, BaseModel | None)
    return found if is_model else None


def declare_config(cls: Any) -> None:
    """Gives a class that declares `Config` the default values. Without them, the server asks for values."""
    if "Config" in cls.__dict__ and "config" not in cls.__dict__ and (model := model_of(cls)) is not None:
        required = any(field.is_required() for field in model.model_fields.values())
        cls.config = None if required else validated(cls, {})


def validated(cls: type, values: Mapping[str, Any]) -> BaseModel | None:
    """The parameters with these values, and those that the class has for the rest.

    Raises:
        InvalidEnvironment: a value is wrong or missing, or there is no such parameter.
    """
    if (model := model_of(cls)) is None:
        if values:
            raise InvalidEnvironment(f"{cls.__name__} has no parameters: it declares no class Config")
        return None
    now = getattr_static(cls, "config", None)
    if not values and isinstance(now, model):
        return now
    given = {name: getattr(now, name) for name in now.model_fields_set} if isinstance(now, model) else {}
    extra: Literal["forbid"] | None = None if model.model_config.get("extra") == "allow" else "forbid"
    try:
        return model.model_validate({**given, **values}, extra=extra, by_alias=True, by_name=True)
    except ValidationError as error:
        raise InvalidEnvironment("; ".join(_told(cls, model, each) for each in error.errors())) from None


def _told(cls: type, model: type[BaseModel], error: Mapping[str, Any]) -> str:
    owner, name = cls.__name__, ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        return f"{owner} has no parameter {name!r}; its parameters: {', '.join(model.model_fields) or 'none'}"
    if error["type"] == "missing":
        return f"{owner} needs the parameter {name!r}: {owner}.configured({name}=…), or --set {name}=VALUE"
    given = f" with {name}={error['input']!r:.100}" if name else ""
    return f"{owner} cannot be configured{given}: {' '.join(error['msg'].split())}"


def described(cls: type) -> dict[str, Any] | None:
    """The parameters as JSON: {"schema": …, "values": …}; None if the class has none.

    Raises:
        InvalidEnvironment: they cannot be written as JSON.
    """
    model, now = model_of(cls), getattr_static(cls, "config", None)
    if model is None or not isinstance(now, model):
        return None
    try:
        return {"schema": model.model_json_schema(by_alias=False), "values": now.model_dump(mode="json")}
    except (PydanticUserError, PydanticSerializationError) as error:
        raise InvalidEnvironment(f"{cls.__name__}.Config cannot be written as JSON: {error}") from None
