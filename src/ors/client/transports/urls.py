"""URLs of servers and proxies."""

import base64
from urllib.parse import SplitResult, unquote, urlsplit


def port_of(url: SplitResult) -> int:
    """The port of a URL, or the default of its scheme."""
    return url.port or (443 if url.scheme == "https" else 80)


def authorization(header: str, url: SplitResult) -> list[str]:
    """The header line for the login in a URL, if it has one."""
    login = url.netloc.rpartition("@")[0]
    return [f"{header}: Basic {base64.b64encode(unquote(login).encode()).decode()}"] if login else []


def proxy_of(url: SplitResult) -> SplitResult | None:
    """The proxy for a server, from environment variables or system settings; None if there is none.

    Raises:
        ValueError: it is not an HTTP proxy.
    """
    from urllib.request import getproxies, proxy_bypass  # slow to import

    names = (url.hostname or "", url.netloc.rpartition("@")[2])  # no_proxy may name a host, or host:port
    proxy = None if any(map(proxy_bypass, names)) else getproxies().get(url.scheme)
    if not proxy:
        return None
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"a proxy must be like http://host:port, not {parts.scheme}://{parts.hostname or ''}"
        )
    return parts
