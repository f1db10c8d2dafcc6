"""The program inside a sandbox: these modules joined, run by the Python that is there.

They import each other only for the type checker. All names of all modules are in one place there.
"""

import __future__

import marshal
from functools import cache
from importlib.resources import files
from importlib.util import MAGIC_NUMBER
from typing import Any

MODULES = ("archive", "child", "usage", "agent")

BOOT = """\
import marshal,os,sys
def take(n):
 b=b''
 while len(b)<n:
  c=os.read(0,n-len(b))
  if not c:os._exit(0)
  b+=c
 return b
g={'__name__':'agent'}
v=sys.modules['_frozen_importlib_external'].MAGIC_NUMBER
for m,c,s in marshal.loads(take(int.from_bytes(take(4),'big'))):
 exec(marshal.loads(c) if m==v else compile(s,'agent','exec'),g)
g['main'](take)
"""
"""Program of `python -c`: receives the agent over standard input. A Python of the server's version need not
compile it, which takes longer than everything else."""


@cache
def agent() -> bytes:
    parts = []
    for name in MODULES:
        text = files(__name__).joinpath(f"{name}.py").read_text(encoding="utf-8")
        bare = text.replace("from __future__ import annotations\n", "\n")  # to import it takes 0.3 ms
        flags = __future__.annotations.compiler_flag
        code = marshal.dumps(compile(bare, f"{name}.py", "exec", flags, dont_inherit=True, optimize=2))
        parts.append((MAGIC_NUMBER, code, text))
    return framed(parts)


def framed(value: Any) -> bytes:
    data = marshal.dumps(value, 2)
    return len(data).to_bytes(4, "big") + data
