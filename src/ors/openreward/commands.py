"""Commands and files in a sandbox, as clients of openreward ask for them."""

import asyncio
from typing import NamedTuple

from ors.errors import BadRequest, NotFound, ResponseError
from ors.sandbox import Sandbox

LONGEST_WORD = 100_000
"""Longer commands go by standard input: a word of a command has at most 128 kB in Linux."""
OUTPUT_BYTES = 16 * 2**20
CHUNK_BYTES = 4 * 2**20
"""Most bytes of a file in one request."""
TIMED_OUT = 124
KILL_SECONDS = 5.0
FILE_SECONDS = 900.0

FILES = """
p=$2 t=$2.orpart
fail() { echo "$p: $2" >&2; exit $1; }
size() { stat -c %s -- "$1" 2> /dev/null || echo -1; }
sum() { sha256sum < "$1" | cut -c -64; }
case $1 in stat|read)
  [ ! -L "$p" ] || fail 40 "is a symlink"
  [ -e "$p" ] || fail 44 "there is no such file"
  [ -f "$p" ] || fail 40 "is not a regular file"
esac
case $1 in
stat) size "$p"; [ -z "$3" ] || sum "$p";;
read)
  n=$(size "$p")
  [ "$3" -le "$n" ] || fail 41 "has $n bytes"
  echo $n >&2
  tail -c +$(($3 + 1)) -- "$p" | head -c "$4";;
write)
  [ -z "$4" ] || mkdir -p -- "$(dirname -- "$p")" || exit 40
  [ "$3" = 0 ] || [ "$(size "$t")" -ge "$3" ] || fail 40 "the bytes before $3 have not arrived"
  : >> "$t" && truncate -s "$3" -- "$t" && cat >> "$t";;
commit)
  [ -e "$t" ] || t=$p  # the commit came twice
  [ "$(size "$t")" = "$3" ] || fail 40 "has $(size "$t") bytes, not $3"
  sum "$t" && { [ "$t" = "$p" ] || mv -T -- "$t" "$p"; };;
esac"""


class Ran(NamedTuple):
    """How a command ended, with the beginning of what it printed."""

    return_code: int
    output: bytes
    timed_out: bool


async def run(
    box: Sandbox, cmd: str, timeout: float | None, max_bytes: int | None, shell: str = "/bin/bash"
) -> Ran:
    """Runs a command. It goes on when it has printed `max_bytes`, but nothing further is kept."""
    most = OUTPUT_BYTES + 1 if max_bytes is None else min(max_bytes, OUTPUT_BYTES + 1)
    output, status = bytearray(), None
    word, stdin = (cmd, b"") if len(cmd) <= LONGEST_WORD else (". /dev/stdin", cmd.encode())
    process = await box.spawn(["/bin/sh", "-c", 'exec "$@" 2>&1', "sh", shell, "-c", word])
    try:
        async with asyncio.timeout(timeout or None):
            await process.write(stdin, end=True)
            while data := await process.read():
                output += data[: most - len(output)]
            status, _ = await asyncio.shield(process.ended)
    except TimeoutError:
        process.kill()
        await asyncio.wait([process.ended], timeout=KILL_SECONDS)
    except asyncio.CancelledError:
        process.kill()
        raise
    if len(output) > OUTPUT_BYTES:
        text = f"The output is over the limit of {OUTPUT_BYTES} bytes; write it to a file, and download that"
        raise BadRequest(text, reason="limit")
    if status is None:
        return Ran(TIMED_OUT, bytes(output), timed_out=True)
    return Ran(status if status >= 0 else 128 - status, bytes(output), timed_out=False)


async def file(box: Sandbox, what: str, path: str, *words: object, data: bytes = b"") -> tuple[bytes, bytes]:
    """Asks the shell inside for a file, by FILES: what it prints, and its errors.

    "stat" takes whether to hash, "read" an offset and a length, "write" an offset and whether to make
    folders, "commit" a size. Chunks are written to a file beside `path`, which the commit moves there.
    """
    if "\0" in path:
        raise BadRequest("path: it contains a zero byte")
    command = ["/bin/sh", "-c", FILES, "sh", what, path, *(str(word) for word in words)]
    done = await box.exec(command, stdin=data, timeout=FILE_SECONDS, max_output=CHUNK_BYTES + 1024)
    if done.returncode == 0:
        return done.stdout, done.stderr
    text = done.stderr.decode(errors="replace").strip() or f"ended by a limit: {done.limit}"
    if done.returncode == 41:
        raise ResponseError(text, status=416)
    raise NotFound(text) if done.returncode == 44 else BadRequest(text)


def sizes(printed: tuple[bytes, bytes]) -> dict[str, int | str]:
    size, *digest = printed[0].decode().split()
    return {"size": int(size), "sha256": digest[0]} if digest else {"size": int(size)}
