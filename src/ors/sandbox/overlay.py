"""Makes a root whose changes stay in memory, and becomes bubblewrap: `python overlay.py WHAT COMMAND…`.

It runs on the host, in a mount namespace of its own that ends with the sandbox. Where it is root, a mapped
mount gives the root's files to the sandbox's user. A plain user either owns the root, or gets its outer
folders: programs can add files there, and replace or delete those that are there.
"""

import ctypes
import marshal
import os
import stat
import sys

SCRATCH = "/sys"
"""Where the parts are put together: every host has this folder, and nobody keeps a root in it."""
ROOT, CHANGES = f"{SCRATCH}/root", f"{SCRATCH}/changes"
DEEP = "/usr/local"
"""The folder of a foreign root that is given at any depth: pip installs here."""
SMALL = 1 << 16
KILL, STOP = 9, 19  # a module less takes milliseconds less
NEW_MOUNTS, NEW_USERS, PRIVATE = 0x20000, 0x10000000, 0x44000
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
CLONED, AT_CWD, EMPTY_PATH, FROM_FD, MAP_IDS = 0x80001, -100, 0x1000, 4, 0x100000

libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), what)
    return result


def mount(kind: str, target: str, options: str = "", flags: int = 0) -> None:
    words = [text.encode() for text in (kind, target, kind)]
    checked(libc.mount(*words, ctypes.c_ulong(flags), options.encode()), target)


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def enter(user: int, group: int) -> None:
    """Enters a mount namespace; a plain user needs a user namespace for that."""
    checked(libc.unshare(NEW_MOUNTS | (NEW_USERS if user else 0)), "unshare")
    if user:
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", f"{user} {user} 1")
        write("/proc/self/gid_map", f"{group} {group} 1")
    mount("none", "/", flags=PRIVATE)


def mapped(lower: str, target: str, user: int, owner: int) -> None:
    """Mounts a folder at `target`, where its owner is `user`. Raises OSError: no users can be mapped."""
    child = os.fork()
    if child == 0:
        libc.unshare(NEW_USERS)
        os.kill(os.getpid(), STOP)
    os.waitpid(child, os.WUNTRACED)
    try:
        others = f"{owner + 1} {user + owner + 5} 65535\n" + (f"0 {user + 4} {owner}\n" if owner else "")
        for kind in ("uid", "gid"):
            write(f"/proc/{child}/{kind}_map", f"{owner} {user} 1\n{others}")
        users = os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.kill(child, KILL)
        os.waitpid(child, 0)
    tree = checked(libc.syscall(OPEN_TREE, AT_CWD, lower.encode(), CLONED | os.O_CLOEXEC), lower)
    wanted = (ctypes.c_uint64 * 4)(MAP_IDS, 0, 0, users)
    checked(libc.syscall(MOUNT_SETATTR, tree, b"", EMPTY_PATH, wanted, 32), lower)
    checked(libc.syscall(MOVE_MOUNT, tree, b"", AT_CWD, target.encode(), FROM_FD), target)


def outline(name: str, lower: str, upper: str, hidden: list[str]) -> None:
    """Makes the outer folders of a root once more in the layer above it, where they belong to its user."""
    todo = [lower]
    for path in todo:
        inner = path[len(lower) :]
        os.makedirs(upper + inner, exist_ok=True)
        if (name + inner).count("/") < 2 or (name + inner + "/").startswith(f"{DEEP}/"):
            todo += [each for each in folders(path) if each not in hidden]


def cover(number: int, name: str, lower: str, user: int, owner: int, hidden: list[str]) -> None:
    """Puts a writable layer over a folder, or over nothing. Hidden folders are empty in it."""
    upper, work, below = f"{CHANGES}/{number}", f"{SCRATCH}/{number}-work", f"{SCRATCH}/{number}-lower"
    for folder in (upper, work, below, ROOT + name):
        os.makedirs(folder, exist_ok=True)
    try:
        if lower and os.getuid() == 0:
            mapped(lower, below, user, owner)
        elif lower and owner != user:
            outline(name, lower, upper, hidden)
    except OSError:
        outline(name, lower, upper, hidden)
    hidden = [path for path in hidden if name and path.startswith(f"{name}/")]
    for path in hidden:
        os.makedirs(os.path.dirname(upper + path[len(name) :]), exist_ok=True)
        os.mknod(upper + path[len(name) :], stat.S_IFCHR)  # this removes what is below, now and later
    for path, _, _ in os.walk(upper):
        own(path, user)
    lower = lower if lower and not os.path.ismount(below) else below
    escaped = lower.translate({ord(each): f"\\{each}" for each in "\\:,"})
    mount("overlay", ROOT + name, f"lowerdir={escaped},upperdir={upper},workdir={work},userxattr")
    for path in hidden:  # made again, for what programs put there
        try:
            os.mkdir(ROOT + path)
        except OSError:  # before Linux 6.6
            continue
        own(ROOT + path, user)


def give_homes(user: int) -> None:
    """Gives the home folders of other users to `user`, with the small files in them."""
    for home in folders(f"{ROOT}/home"):
        for path in (home, *(each.path for each in os.scandir(home))):
            if os.lstat(path).st_size < SMALL:  # it is copied for that
                own(path, user)


def folders(path: str) -> list[str]:
    """Folders in a folder, without links, which would lead to the host."""
    if os.path.islink(path) or not os.path.isdir(path):
        return []
    return [each.path for each in os.scandir(path) if each.is_dir(follow_symlinks=False)]


def own(path: str, user: int) -> None:
    if os.getuid() == 0:
        os.chown(path, user, user, follow_symlinks=False)


def main() -> None:
    layers, options, user, hidden = marshal.loads(bytes.fromhex(sys.argv[1]))
    try:
        owners = [os.stat(lower or "/").st_uid for lower in layers.values()]
        enter(os.getuid(), os.getgid())  # where unknown users look like nobody
        mount("tmpfs", SCRATCH, options)
        for number, (name, lower) in enumerate(layers.items()):
            cover(number, name, lower, user, owners[number], hidden)
        if os.getuid() == 0:
            give_homes(user)
    except OSError as error:
        sys.exit(f"overlay: {error}")
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
