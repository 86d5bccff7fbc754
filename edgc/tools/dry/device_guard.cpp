// A CUDA device that has no memory and computes nothing, for a CPU build of torch.
//
// Autograd asks the device's guard for streams and starts a thread for each device; a CPU build has no guard for CUDA.
// Torch's own CUDA hooks are a class without members, so ours can be put where they are.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <new>

namespace {

using c10::Device, c10::DeviceIndex, c10::DeviceType, c10::Stream;

DeviceIndex devices = 1;
DeviceIndex own = 0;  // this process's
thread_local DeviceIndex current = own;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::CUDA; }
  Device exchangeDevice(Device to) const override {
    Device before = getDevice();
    setDevice(to);
    return before;
  }
  Device getDevice() const override { return Device(DeviceType::CUDA, current); }
  void setDevice(Device to) const override { uncheckedSetDevice(to); }
  void uncheckedSetDevice(Device to) const noexcept override {
    if (to.has_index()) current = to.index();
  }
  Stream getStream(Device of) const override { return Stream(Stream::DEFAULT, whole(of)); }
  Stream getDefaultStream(Device of) const override { return getStream(of); }
  Stream getNewStream(Device of, int) const override { return getStream(of); }
  Stream getStreamFromGlobalPool(Device of, bool) const override { return getStream(of); }
  Stream exchangeStream(Stream to) const override { return getStream(to.device()); }
  void record(void**, const Stream&, const DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const DeviceIndex) const override {}
  DeviceIndex deviceCount() const noexcept override { return devices; }

 private:
  static Device whole(Device of) { return of.has_index() ? of : Device(DeviceType::CUDA, current); }
};

struct Hooks final : at::CUDAHooksInterface {
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return devices; }
  DeviceIndex deviceCount() const override { return devices; }
  DeviceIndex current_device() const override { return current; }
  DeviceIndex getCurrentDevice() const override { return current; }
  void deviceSynchronize(DeviceIndex) const override {}
};

static_assert(sizeof(Hooks) == sizeof(at::CUDAHooksInterface));

}  // namespace

extern "C" void install(int count, int index) {
  devices = static_cast<DeviceIndex>(count);
  own = current = static_cast<DeviceIndex>(index);
  static Guard guard;
  c10::impl::device_guard_impl_registry[static_cast<size_t>(DeviceType::CUDA)].store(&guard);
  new (const_cast<at::CUDAHooksInterface*>(&at::detail::getCUDAHooks())) Hooks();
}
