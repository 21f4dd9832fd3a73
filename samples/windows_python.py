"""Makes what links a Python extension for Windows on another system: python windows_python.py FOLDER/python.

Python's headers are this Python's, but for pyconfig.h, which says what a system has; the import library names what the
headers declare of the stable ABI. Needs the package ziglang.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

PYCONFIG = """/* What Python's headers ask about 64-bit Windows, with the stable ABI. */
#define MS_WINDOWS 1
#define MS_WIN32 1
#define MS_WIN64 1
#define HAVE_DECLSPEC_DLL 1
#define Py_ENABLE_SHARED 1
#define SIZEOF_WCHAR_T 2
#define SIZEOF_SHORT 2
#define SIZEOF_INT 4
#define SIZEOF_LONG 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_VOID_P 8
#define SIZEOF_HKEY 8
#define HAVE_STDDEF_H 1
#define HAVE_ERRNO_H 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_SYS_STAT_H 1
#define HAVE_STDARG_PROTOTYPES 1
#define HAVE_WCHAR_H 1
"""


def exported_names(include: Path) -> list[str]:
    """Definitions of a module file: functions, and data marked as such."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(include.glob("*.h")))
    functions = set(re.findall(r"PyAPI_FUNC\([^)]*\)\s*(\w+)\s*\(", text))
    data = set(re.findall(r"PyAPI_DATA\([^)]*\)\s*(\w+)", text))
    return sorted(functions) + [f"{name} DATA" for name in sorted(data)]


def main(folder: Path) -> None:
    """Writes headers and python3.lib into a folder."""
    include = Path(sysconfig.get_paths()["include"])
    shutil.copytree(include, folder, dirs_exist_ok=True)  # headers look for pyconfig.h beside them first
    (folder / "pyconfig.h").write_text(PYCONFIG, encoding="ascii")
    names = exported_names(include)
    definitions = folder / "python3.def"
    definitions.write_text("LIBRARY python3.dll\nEXPORTS\n" + "\n".join(names) + "\n", encoding="ascii")
    tool = [sys.executable, "-m", "ziglang", "dlltool", "-m", "i386:x86-64"]
    subprocess.run([*tool, "-d", str(definitions), "-l", str(folder / "python3.lib")], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
