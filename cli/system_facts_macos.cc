// As <sys/sysctl.h>, <mach/mach_host.h> and <crt_externs.h> have it.
#include <crt_externs.h>
#include <mach-o/dyld.h>
#include <mach/mach.h>
#include <sys/sysctl.h>

#include "cli/system_facts.h"

namespace kakeya::cli {

std::string cpu_name() {
  char name[256] = {};
  std::size_t bytes = sizeof(name) - 1;
  const bool said = ::sysctlbyname("machdep.cpu.brand_string", name, &bytes, nullptr, 0) == 0;
  return said ? name : "unknown";
}

std::uint64_t machine_memory() {
  std::uint64_t memory = 0;
  std::size_t bytes = sizeof(memory);
  return ::sysctlbyname("hw.memsize", &memory, &bytes, nullptr, 0) == 0 ? memory : 0;
}

std::uint64_t free_machine_memory() {
  vm_statistics64_data_t pages = {};
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  const auto out = reinterpret_cast<host_info64_t>(&pages);
  if (::host_statistics64(::mach_host_self(), HOST_VM_INFO64, out, &count) != KERN_SUCCESS)
    return 0;
  // Inactive pages of files that nothing changed are given up when others need them.
  const std::uint64_t free = std::uint64_t{pages.free_count} + pages.inactive_count;
  return free * vm_kernel_page_size;
}

std::uint64_t resident_memory() {
  mach_task_basic_info info = {};
  mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
  const auto out = reinterpret_cast<task_info_t>(&info);
  const auto said = ::task_info(::mach_task_self(), MACH_TASK_BASIC_INFO, out, &count);
  return said == KERN_SUCCESS ? info.resident_size : 0;
}

std::string program_path() {
  char path[4096] = {};
  std::uint32_t bytes = sizeof(path);
  return ::_NSGetExecutablePath(path, &bytes) == 0 ? path : "";
}

std::vector<std::string> command_words() {
  char** const words = *::_NSGetArgv();
  return {words, words + *::_NSGetArgc()};
}

}  // namespace kakeya::cli
