// Takes what xgrammar, built with XGRAMMAR_LOG_CUSTOMIZE, would write to stderr: its warnings are
// of no use to those who run a server, its errors become exceptions as they are without.
#include <stdexcept>
#include <string>

namespace xgrammar {

[[noreturn]] void LogFatalImpl(const std::string& file, int line, const std::string& message);
void LogMessageImpl(const std::string& file, int line, int level, const std::string& message);

void LogFatalImpl(const std::string& /*file*/, int /*line*/, const std::string& message) {
  throw std::runtime_error(message);
}

void LogMessageImpl(const std::string& /*file*/,
                    int /*line*/,
                    int /*level*/,
                    const std::string& /*message*/) {}

}  // namespace xgrammar
