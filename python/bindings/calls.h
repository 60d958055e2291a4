// The calls of the package that run, which the end of the interpreter stops and waits for. Python
// up to 3.13 ends a thread that asks for the GIL too late, within the frames of whoever asked;
// frames of C++ end the process then. So no thread may be in the package once the interpreter has
// gone.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>

namespace kakeya::python {

namespace nb = nanobind;

// Stands for a call of the package, as nb::call_guard of whatever may run code of Python. Made with
// the GIL. Once the interpreter ends, throws Raised with kFailedPrecondition in the thread that
// ends it; another thread stays in here, without the GIL, until the process is gone.
class Call {
 public:
  Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call();
};

// Gives the GIL away, as a part of a Call. Made as that is. A thread that the end of the
// interpreter found in its outermost one stays in it.
class Unlocked {
 public:
  Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked();

 private:
  Call call_;
  PyThreadState* state_;
};

// Has the GIL for code of Python that a pass or a loading runs, whose Call goes on meanwhile.
class Locked {
 public:
  Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked();

 private:
  nb::gil_scoped_acquire gil_;
};

// Stands for a thread of the package's own, from before it is started. Any thread makes it.
class Worker {
 public:
  // The end of the interpreter calls `stop`, which asks for no GIL and makes no call of this file.
  explicit Worker(std::function<void()> stop);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() { finish(); }
  // Called first by the thread.
  static void begin();
  // Called last by the thread, which asks for nothing of Python's any more.
  void finish();
};

// Where an object was made. A process that forks has none of its threads and all of its locks: what
// it inherits can neither be used there nor be destroyed. Any thread.
class Birthplace {
 public:
  Birthplace();
  // False in a process that was forked since.
  bool is_here() const;
  // Throws Raised with kFailedPrecondition in one.
  void require_here() const;

 private:
  int forks_;
};

// True from when the interpreter begins to end: what runs shall end before its next step. Any
// thread.
bool is_ending();

// Calls `clean`, which may wait for passes, without the GIL, which a pass may want; with the GIL
// where the interpreter has ended all of them. Whoever calls has the GIL or has not.
void run_unlocked(const std::function<void()>& clean);

void bind_calls(nb::module_& module);

}  // namespace kakeya::python
