"""File systems of one's own on loop devices, whose power can be cut.

The cut is the shutdown ioctl that ext4 and xfs share, without flushing the log: from that moment nothing more reaches
the device, and what had not been synced is gone when it is mounted again.
"""

import errno
import fcntl
import os
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

FileSystem = Literal["ext4", "xfs"]

_SHUTDOWN: Final = 0x8004587D
_WITHOUT_FLUSHING_THE_LOG: Final = 2
_DETACH_S: Final = 120.0
_MAKE: Final = {"ext4": ["mkfs.ext4", "-q", "-F"], "xfs": ["mkfs.xfs", "-q", "-f"]}


@dataclass(slots=True)
class Volume:
    """The file system of a loop device, mounted at ``place``."""

    device: str
    place: Path
    file_system: FileSystem

    def cut_power(self) -> None:
        """From here on nothing reaches the device, and whoever writes gets an error."""
        folder = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, _SHUTDOWN, struct.pack("I", _WITHOUT_FLUSHING_THE_LOG))
        finally:
            os.close(folder)

    def free_bytes(self) -> int:
        """Room for root's files, who may fill it to the last block."""
        found = os.statvfs(self.place)
        return found.f_bfree * found.f_frsize

    def mount(self) -> None:
        """Mount, replaying what of the log reached the device."""
        _run("mount", self.device, str(self.place))

    def unmount(self) -> None:
        """Unmount; whoever has files open here must be gone.

        A mount namespace that another process made meanwhile (``ip netns exec`` makes one) holds a copy of the mount,
        and to mount again would give back the same file system, cut as it is: so this waits until nobody holds it.

        Raises:
            AssertionError: Somebody still holds it.
        """
        _run("umount", str(self.place))
        until = time.monotonic() + _DETACH_S
        while self._is_held():
            assert time.monotonic() < until, f"another mount namespace holds {self.place}"
            time.sleep(0.01)

    def _is_held(self) -> bool:
        try:
            os.close(os.open(self.device, os.O_RDONLY | os.O_EXCL))  # refused while the device is mounted anywhere
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return True
        return False

    def restore_power(self) -> None:
        """Unmount what was cut, and mount it again."""
        self.unmount()
        self.mount()


@contextmanager
def volume(folder: Path, file_system: FileSystem, *, size_mib: int) -> Iterator[Volume]:
    """A new, empty file system in an image in ``folder``; unmounted and deleted at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    image, place = folder / f"{file_system}.img", folder / file_system
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(size_mib << 20)
    # One device for all mounts: to be given one anew each time is a race with everybody else who mounts.
    made = Volume(_run("losetup", "--find", "--show", str(image)), place, file_system)
    try:
        _run(*_MAKE[file_system], made.device)
        made.mount()
        yield made
    finally:
        with suppress(subprocess.CalledProcessError):
            made.unmount()
        _run("losetup", "--detach", made.device)
        image.unlink(missing_ok=True)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
