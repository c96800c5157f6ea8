"""Look up model prices: the project's own price file first, then the shipped table of models. Format costs."""

import math
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
from msgspec import Struct

from cuebook.config import Config
from cuebook.errors import InvalidInput
from cuebook.records.turn import CacheEstimate
from cuebook.window.models import model_table, undated

#: The project's price file.
FILE = "config/prices.json"
_MILLION = 1_000_000
#: Shown where a model has no price.
UNKNOWN = "unknown price"
#: The smallest cost that is shown as a number.
_SMALLEST = 1e-6


class Rates(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Prices per million tokens. `cached_input` is for tokens read from the provider's cache."""

    input: float
    cached_input: float
    output: float


class Long(Rates, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The rates of a request whose prompt exceeds `above` tokens, cached ones included."""

    above: int


class Price(Rates, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The price of a model."""

    currency: str = "USD"
    long: Long | None = None  # None: no different rates for long prompts

    def of(self, use: CacheEstimate, *, write: float) -> float:
        """Return the cost of a request's input; `write` is the cache rule's factor for tokens written to the cache."""
        rates = self._at(use)
        return (use.uncached * rates.input + use.read * rates.cached_input + use.write * write * rates.input) / _MILLION

    def of_output(self, tokens: int, use: CacheEstimate) -> float:
        """Return the cost of a request's output."""
        return tokens * self._at(use).output / _MILLION

    def _at(self, use: CacheEstimate) -> Rates:
        tokens = use.uncached + use.read + use.write
        return self.long if self.long is not None and tokens > self.long.above else self


class _Table(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    prices: dict[str, Price]
    as_of: str = ""
    note: str = ""


class Prices(Struct, frozen=True):
    """Prices by glob patterns of model names, the project's own first."""

    own: Mapping[str, Price]
    shipped: Mapping[str, Price]
    as_of: str = ""

    def of(self, model: str) -> Price | None:
        """Return the price of a model, by the longest matching pattern; None if unknown.

        Tries the full name, then the name without a gateway's prefix and the date suffix.
        """
        bare = undated(model.rsplit("/", 1)[-1].lower())
        for table in (self.own, self.shipped):
            for name in dict.fromkeys((model, bare)):
                results = [glob for glob in table if fnmatchcase(name, glob)]
                if results:
                    return table[max(results, key=len)]
        return None


def load_prices(config: Config) -> Prices:
    """Load both tables. Raises InvalidInput naming the project's file and the position of the error."""
    shipped = msgspec.convert(model_table().prices, dict[str, Price])
    priced = model_table().priced
    file = Path(config.folder) / FILE
    if not file.is_file():
        return Prices({}, shipped, priced)
    try:
        table = msgspec.json.decode(file.read_bytes(), type=_Table)
    except OSError as error:
        msg = f"{str(file)!r} cannot be read ({error.strerror}). Check its permissions."
        raise InvalidInput(msg, where=FILE) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = f'{FILE}: {error}. Write {{"prices": {{"my-model*": {{"input": 1, "cachedInput": 0.1, "output": 4}}}}}}'
        raise InvalidInput(msg, where=FILE) from None
    return Prices(table.prices, shipped, priced)


def money(costs: Mapping[str, float]) -> str:
    """Return amounts by currency, those below one with two significant digits."""
    return " + ".join(_amount(currency, cost) for currency, cost in sorted(costs.items()))


def _amount(currency: str, cost: float) -> str:
    if 0 < cost < _SMALLEST:
        return f"<{_amount(currency, _SMALLEST)}"
    digits = 2 if cost >= 1 or not cost else 1 - math.floor(math.log10(cost))
    text = f"{cost:,.{max(2, digits)}f}"
    return f"${text}" if currency == "USD" else f"{text} {currency}"
