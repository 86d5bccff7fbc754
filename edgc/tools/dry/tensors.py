"""Tensors on CUDA that hold no data: torch's fake tensors, with what torch itself leaves out.

CPU tensors stay real. A call that names CUDA, or is given a tensor that lies there, goes to the fake mode. What the
host reads from the device is 1, and is noted with its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch._subclasses.fake_tensor as fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from edgc.tools.dry.device_memory import DeviceMemory
from edgc.tools.dry.notes import HostWait, Notes

SMALL = 2**16  #: elements up to which what the host copies from the device has memory of its own
aten = torch.ops.aten
Tensor = torch.Tensor


class Tensors:
    """The modes in which a process handles such tensors, and the addresses that its kernels are told."""

    def __init__(self, notes: Notes, memory: DeviceMemory, read: Callable[[str], float] = lambda place: 1.0) -> None:
        """read: the value of what the host reads at a place (file and line)."""
        self.notes, self.memory, self._read = notes, memory, read
        self.on_host: set[int] = set()  #: addresses of CPU tensors that somebody asked for
        FakeTensorMode.avoid_device_init = property(lambda mode: True)  # type: ignore[assignment,method-assign]
        fake_tensor.init_gpu_context = lambda device: None
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self._modes = [_Dispatch(self), _Calls(self)]

    @contextmanager
    def modes(self) -> Iterator[None]:
        """Inside, a further thread handles tensors so, too."""
        with _Dispatch(self), _Calls(self):
            yield

    def install(self) -> None:
        """From now on, for the life of the process."""
        for mode in self._modes:
            mode.__enter__()
        torch.nn.Module._apply = _apply  # type: ignore[method-assign]
        FakeTensor.tolist = lambda tensor: self.to_host(tensor, "tolist").tolist()  # type: ignore[method-assign]
        torch.autograd._engine_run_backward = _within(torch.autograd._engine_run_backward, self._modes[1])  # type: ignore[attr-defined]
        torch.save = _saving(torch.save, self)

    def waits(self, what: str) -> float:
        """The host waits for the device. Returns the value that it reads."""
        when = self.notes.now()
        self.notes.waits.append(HostWait(what, when))
        return self._read(when.place)

    def to_host(self, tensor: Tensor, what: str) -> Tensor:
        """A real CPU tensor in place of the device's: all elements are what the host reads; large ones share one."""
        value = self.waits(what)
        return hollow(tensor, value)


def hollow(tensor: Tensor, value: float = 1.0) -> Tensor:
    """A CPU tensor of the same shape and type whose elements are all `value`; a large one has memory for one."""
    whole = torch.full((), value).to(tensor.dtype).expand(tensor.shape)
    return whole.clone() if tensor.numel() <= SMALL else whole


def on_device(value: Any) -> bool:
    """Whether it is a tensor that lies on the stand-in device."""
    return isinstance(value, FakeTensor) and value.device.type == "cuda"


def _names_cuda(func: Any, args: Any, kwargs: Any) -> bool:
    if func is torch.device:
        return False
    if func is Tensor.cuda or isinstance(kwargs.get("device"), int):  # a number is one of a CUDA device
        return True
    return any(_is_cuda(value) for value in (*args, kwargs.get("device")))


def _numbered(value: Any) -> Any:
    """A CUDA device without a number is this process's."""
    if not _is_cuda(value) or torch.device(value).index is not None:
        return value
    return torch.device("cuda", torch.cuda.current_device())


def _is_cuda(value: Any) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and value.startswith("cuda")


class _Dispatch(TorchDispatchMode):
    """Below autograd: what the host reads, and every new storage."""

    def __init__(self, tensors: Tensors) -> None:
        super().__init__()
        self._tensors = tensors

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = self._tensors
        if func is aten._local_scalar_dense.default and on_device(args[0]):
            value = tensors.waits("item")
            kind = args[0].dtype
            return bool(value) if kind is torch.bool else value if kind.is_floating_point else int(value)
        if func is aten._to_copy.default and on_device(args[0]) and _is_host(kwargs.get("device")):
            copied = tensors.to_host(args[0], "copy to the host")
            return copied.to(kwargs["dtype"]) if kwargs.get("dtype") else copied
        if func is aten.copy_.default and on_device(args[1]) and not on_device(args[0]):
            return args[0].fill_(tensors.waits("copy to the host"))
        if func in HOST_DECIDES and any(map(on_device, args)):
            raise tensors.notes.refuse(
                f"{func}: how much it returns depends on data: the host waits, and this cannot go on"
            )
        with self._tensors.fake if _is_cuda(kwargs.get("device")) else nullcontext():
            done = func(*args, **kwargs)
        for leaf in (done,) if isinstance(done, Tensor) else tree_leaves(done):
            if on_device(leaf):
                tensors.memory.block(leaf)
        return done


HOST_DECIDES = {aten.nonzero.default, aten.masked_select.default, aten.equal.default}


def _is_host(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cpu"


class _Calls(TorchFunctionMode):
    """Above autograd: who goes to the fake mode, and what fake tensors do not know."""

    def __init__(self, tensors: Tensors) -> None:
        super().__init__()
        self._tensors = tensors

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        handler = _HANDLERS.get(func)
        if handler is not None:
            done = handler(self, *args, **kwargs)
            if done is not NotImplemented:
                return done
        if _names_cuda(func, args, kwargs):
            with self._tensors.fake:
                made = func(*map(_numbered, args), **{key: _numbered(value) for key, value in kwargs.items()})
            self._tell(args, made)
            return made
        return func(*args, **kwargs)

    def _tell(self, args: Any, made: Any) -> None:
        """Remember the numbers of a small table that was copied from the host: kernels read addresses from it."""
        source = args[0] if args else None
        if not isinstance(source, Tensor) or isinstance(source, FakeTensor) or not on_device(made):
            return
        if source.dtype == torch.int64 and source.numel() <= 8 * SMALL:
            self._tensors.memory.block(made).integers = source.detach().clone()

    def data_ptr(self, tensor: Tensor) -> int:
        if on_device(tensor):
            return self._tensors.memory.address(tensor)
        with torch._C.DisableTorchFunction():
            address = tensor.data_ptr()
        self._tensors.on_host.add(address)
        return address

    def set_data(self, tensor: Tensor, data: Tensor) -> Any:
        if not isinstance(data, FakeTensor):
            return NotImplemented
        if not isinstance(tensor, FakeTensor):
            raise self._tensors.notes.refuse("`.data =` gives a CPU tensor memory on the device")
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            Tensor.data.__set__(tensor, data)  # type: ignore[attr-defined]
        tensor.fake_device = data.fake_device
        return None

    def type_name(self, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs or not on_device(tensor):
            return NotImplemented
        return f"torch.cuda.{str(torch.empty(0, dtype=tensor.dtype).type()).removeprefix('torch.')}"

    def pin(self, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        if on_device(tensor):
            raise self._tensors.notes.refuse("pin_memory of a tensor on the device")
        return tensor

    def numpy(self, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        if on_device(tensor):
            raise self._tensors.notes.refuse("numpy() of a tensor on the device: copy it to the host first")
        return NotImplemented

    def made_of(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        """torch.tensor of scalars on the device: each is read by the host."""
        if not any(map(on_device, tree_leaves(data))):
            return NotImplemented
        numbers = tree_map(lambda x: x.item() if on_device(x) else x, data)
        with self._tensors.fake if _is_cuda(kwargs.get("device")) else nullcontext():
            return torch.tensor(numbers, *args, **kwargs)

    def new_tensor(self, tensor: Tensor, data: Any, **kwargs: Any) -> Any:
        if not on_device(tensor):
            return NotImplemented
        with self._tensors.fake:
            return torch.tensor(data, **({"dtype": tensor.dtype, "device": tensor.device} | kwargs))


_HANDLERS: dict[Any, Callable[..., Any]] = {
    Tensor.data_ptr: _Calls.data_ptr,
    Tensor.data.__set__: _Calls.set_data,  # type: ignore[attr-defined]
    Tensor.type: _Calls.type_name,
    Tensor.pin_memory: _Calls.pin,
    Tensor.numpy: _Calls.numpy,
    torch.tensor: _Calls.made_of,
    Tensor.new_tensor: _Calls.new_tensor,
}


def _apply(module: torch.nn.Module, function: Callable[[Tensor], Tensor], recurse: bool = True) -> torch.nn.Module:
    """`Module._apply`, which moves modules: parameters stay the objects that they are."""
    for child in module.children() if recurse else ():
        child._apply(function)
    for parameter in module._parameters.values():
        if parameter is None:
            continue
        with torch.no_grad():
            parameter.data = function(parameter)
    for key, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[key] = function(buffer)
    return module


def _within(plain: Callable[..., Any], mode: TorchFunctionMode) -> Callable[..., Any]:
    """`plain` with the mode, which torch leaves while a function that the mode was asked about runs."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return plain(*args, **kwargs)

    return run


def _saving(plain: Callable[..., Any], tensors: Tensors) -> Callable[..., Any]:
    """`torch.save` of what is on the device, by way of the host: a large tensor takes the room of one element."""

    def save(state: Any, *args: Any, **kwargs: Any) -> Any:
        return plain(tree_map(lambda x: tensors.to_host(x, "save") if on_device(x) else x, state), *args, **kwargs)

    return save
