// The end of the program when a file that it has mapped is cut off under it.
#pragma once

namespace kakeya::cli {

// From now on the program then says so in one line and exits with kExitBadInput, instead of being
// killed by SIGBUS. Other causes of that signal still kill it. Call once, before other threads.
void exit_on_lost_files();

}  // namespace kakeya::cli
