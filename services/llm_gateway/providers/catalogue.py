"""The providers in force: the last valid provider file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import structlog
from pydantic import ValidationError

from headrace.errors import InvalidRequest, Overloaded
from headrace.regular_files import read_regular_text
from services.llm_gateway.providers.provider_file import Model, Price, Provider, Providers
from services.runtime.files.refused_files import REFUSED_FILES, describe_problems, load_config_json, report_refusal

FILE_BYTES_MAX = 1024 * 1024

log = structlog.get_logger()


class Catalogue:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._providers: dict[str, Provider] = {}
        self.is_loaded = False
        """Whether a provider file has been valid since the start."""

    @property
    def providers(self) -> Sequence[Provider]:
        return tuple(self._providers.values())

    def reload(self) -> None:
        """Read the file again; an invalid one is logged and ignored."""
        try:
            text = read_regular_text(self._path, FILE_BYTES_MAX)
            provider_file = Providers.model_validate(load_config_json(text))
        except (OSError, ValueError) as error:
            problems = [str(error)]
            if isinstance(error, ValidationError):
                problems = describe_problems(error, Providers)
            REFUSED_FILES.labels("providers").set(1)
            report_refusal("provider file refused", file=str(self._path), problem="\n".join(problems))
            return
        self._providers = {provider.key: provider for provider in provider_file.providers}
        self.is_loaded = True
        REFUSED_FILES.labels("providers").set(0)
        log.info("provider file loaded", file=str(self._path), providers=[*self._providers])

    def list_models(self, key: str, model: str) -> list[tuple[Provider, Model]]:
        """List entries in the file's order, optionally of provider `key` or serving `model`.

        Raises:
            Overloaded: No provider file has been valid since the start.
        """
        self.check_loaded()
        providers = [provider for provider in self.providers if key in ("", provider.key)]
        if model:
            return [(provider, entry) for provider in providers if (entry := provider.find_entry(model)) is not None]
        return [(provider, entry) for provider in providers for entry in provider.models]

    def list_prices(self, provider: Provider, entry: Model) -> list[Price | None]:
        """Return the prices of `entry` and of its provider's fallbacks."""
        fallbacks = (fallback.partition("/") for fallback in provider.fallback)
        entries = [entry, *(self.find_model(key, model)[1] for key, _, model in fallbacks)]
        return [model.price for model in entries]

    def find_model(self, key: str, model: str) -> tuple[Provider, Model]:
        """Return provider `key` and its entry for `model`.

        Raises:
            InvalidRequest: There is none.
            Overloaded: No provider file has been valid since the start.
        """
        self.check_loaded()
        provider = self._providers.get(key)
        if provider is None:
            raise InvalidRequest.of("providerKey", f"{key!r} is not configured; known: {', '.join(self._providers)}")
        entry = provider.find_entry(model)
        if entry is None:
            known = ", ".join(known.name for known in provider.models)
            raise InvalidRequest.of("model", f"{model!r} is not configured at {key!r}; known: {known}")
        return provider, entry

    def check_loaded(self) -> None:
        if not self.is_loaded:
            raise Overloaded("no provider file has been valid since the gateway's start; its log has the errors")
