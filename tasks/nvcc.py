"""nvcc: CUDA programs with a TVM-FFI or a PyTorch binding. Standard library and torch only (torch for its headers)."""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
import subprocess
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

from tasks.tool import Build, Limits, ToolMissing, Unbuilt, clip, compile_error, environment, out_of_time, run

SOURCE = "kernel.cu"
_NAME = "kernel"
_STUBS = Path(__file__).with_name("stubs")
_MEMORY_KIB = 24 << 20
_PREFILTER_S = 60.0
_FEATURES = ("9.0", "10.0", "10.3", "12.0")
"""Compute capabilities whose own instructions need the suffix "a"."""
_BEYOND_STUBS = re.compile(r"torch::|at::|c10::|py::|pybind11|ATen/|has no member|no suitable|torch/")
"""Errors that may come from what the stub headers lack, not from the program."""
_RESOURCES = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads.*?Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Nvcc:
    """A working nvcc for one GPU architecture."""

    path: str
    arch: str
    version: str

    @property
    def flags(self) -> tuple[str, ...]:
        """Everything that changes the code that is made."""
        return ("-std=c++17", "-O3", f"-arch={self.arch}", "-lineinfo")


@functools.cache
def find_nvcc(capability: str) -> Nvcc:
    """The machine's nvcc for a compute capability such as "9.0"; ToolMissing when there is none."""
    path = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if path is None:
        raise ToolMissing("nvcc was not found: install the CUDA toolkit, or put its bin folder on PATH")
    said = subprocess.run(
        [path, "--version"], capture_output=True, text=True, check=False, env=environment(), timeout=60
    )
    release = re.search(r"V([\d.]+)", said.stdout)
    suffix = "a" if capability in _FEATURES else ""
    return Nvcc(
        path, f"sm_{capability.replace('.', '')}{suffix}", f"nvcc {release[1] if release else 'of unknown version'}"
    )


def binding(source: str) -> str:
    """The binding that a source text is written for: "torch" or "tvm-ffi"."""
    return "torch" if re.search(r"torch/(extension|all|torch)\.h|PYBIND11_MODULE|TORCH_LIBRARY", source) else "tvm-ffi"


def build(nvcc: Nvcc, entry: str, source: str, folder: Path, limit_s: float) -> Build | Unbuilt:
    """The shared object of a CUDA source text, in an existing folder. Raises ToolMissing without its headers."""
    began = time.monotonic()
    (folder / SOURCE).write_text(source, encoding="utf-8")
    form = binding(source)
    refusal = _missing_entry(entry, source, form)
    if refusal:
        return compile_error(refusal, began)
    notes = ""
    if form == "torch":
        checked = prefilter(nvcc, source, folder)
        if isinstance(checked, Unbuilt):
            return checked
        notes = checked
    library = folder / "kernel.so"
    options = _torch_options() if form == "torch" else _ffi_options()
    command = [nvcc.path, *nvcc.flags, "-Xptxas", "-v", "-shared", "-Xcompiler", "-fPIC", SOURCE, "-o", library.name,
               *options, *_libraries(source)]  # fmt: skip
    status, said = run(command, folder, Limits(limit_s, _MEMORY_KIB))
    if status is None:
        return out_of_time(limit_s)
    if status != 0 or not library.exists():
        return compile_error(clip(said, folder) or f"nvcc ended with status {status} and said nothing", began)
    return Build(str(library), form, time.monotonic() - began, resources(said) or notes)


def prefilter(nvcc: Nvcc, source: str, folder: Path) -> str | Unbuilt:
    """What the kernels use (registers, spills), or why no compiler can take the source; seconds instead of a minute.

    Compiles the device code alone, with stand-ins for PyTorch's headers. Empty when the stand-ins do not
    suffice: then only the real headers can tell.
    """
    began = time.monotonic()
    (folder / SOURCE).write_text(source, encoding="utf-8")
    headers = ["-I", str(_STUBS)] if binding(source) == "torch" else _ffi_includes()
    command = [nvcc.path, *nvcc.flags, "-Xptxas", "-v", "-cubin", SOURCE, "-o", "kernel.cubin", *headers]
    status, said = run(command, folder, Limits(_PREFILTER_S, _MEMORY_KIB))
    if status == 0:
        return resources(said)
    errors = [line for line in said.splitlines() if "error" in line]
    if status is None or not errors or any(_BEYOND_STUBS.search(line) for line in errors):
        return ""
    return compile_error(clip(said, folder), began)


def resources(said: str) -> str:
    """One line per kernel from ptxas's report: registers, stack, spills, shared memory."""
    lines = []
    for found in _RESOURCES.finditer(said):
        shared = re.search(r"(\d+) bytes smem", found["rest"])
        spills = int(found["stores"]) + int(found["loads"])
        parts = [f"{found['registers']} registers"]
        if int(found["stack"]):
            parts.append(f"{found['stack']} bytes of stack")
        parts.append(f"{spills} bytes spilled" if spills else "no spills")
        if shared:
            parts.append(f"{shared[1]} bytes of static shared memory")
        lines.append(f"{_demangled(found['name'])}: {', '.join(parts)}")
    return "\n".join(lines)


def _demangled(symbol: str) -> str:
    tool = shutil.which("c++filt")
    if tool is None:
        return symbol
    said = subprocess.run([tool, symbol], capture_output=True, text=True, check=False, timeout=60)
    return said.stdout.strip().split("(")[0].removeprefix("void ") or symbol


def _missing_entry(entry: str, source: str, form: str) -> str:
    """Why the entry point cannot be called, from the source alone; empty when it can."""
    if form == "torch":
        if re.search(rf'\bdef\(\s*"{entry}"', source):
            return ""
        return f'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) must define the entry point: m.def("{entry}", ...)'
    if re.search(rf"TVM_FFI_DLL_EXPORT_TYPED_FUNC\(\s*{entry}\s*,", source):
        return ""
    return f"the entry point {entry} is not exported: the program must say TVM_FFI_DLL_EXPORT_TYPED_FUNC({entry}, ...)"


def _libraries(source: str) -> list[str]:
    """Libraries of the CUDA toolkit that the source calls."""
    wanted = {"-lcuda": r"<cuda\.h>", "-lcublas": r"<cublas_v2\.h>", "-lcublasLt": r"<cublasLt\.h>"}
    return [option for option, header in wanted.items() if re.search(rf"#\s*include\s*{header}", source)]


def _ffi_folder() -> Path:
    found = importlib.util.find_spec("tvm_ffi")
    if found is None or found.origin is None:
        raise ToolMissing(
            "CUDA programs with a TVM-FFI binding need the package apache-tvm-ffi: pip install apache-tvm-ffi"
        )
    return Path(found.origin).parent


def _ffi_includes() -> list[str]:
    try:
        return ["-I", str(_ffi_folder() / "include")]
    except ToolMissing:
        return []


def _ffi_options() -> list[str]:
    folder = _ffi_folder()
    return ["-I", str(folder / "include"), f"-L{folder / 'lib'}", "-ltvm_ffi", "-Xlinker", f"-rpath={folder / 'lib'}"]


def _torch_options() -> list[str]:
    import torch
    from torch.utils import cpp_extension

    includes = [*cpp_extension.include_paths("cuda"), sysconfig.get_paths()["include"]]
    libraries = cpp_extension.library_paths("cuda")
    abi = int(torch.compiled_with_cxx11_abi())
    return [
        *(f"-I{path}" for path in includes), *(f"-L{path}" for path in libraries),
        f"-DTORCH_EXTENSION_NAME={_NAME}", "-DTORCH_API_INCLUDE_EXTENSION_H", f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
        "--expt-relaxed-constexpr", "--expt-extended-lambda",
        "-lc10", "-lc10_cuda", "-ltorch_cpu", "-ltorch_cuda", "-ltorch", "-ltorch_python",
    ]  # fmt: skip
