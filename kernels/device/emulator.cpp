// Fibers: a barrier switches to the scheduler, which resumes a thread once all that must arrive have. ucontext starts
// them on their stacks, and _setjmp switches between them, because each swapcontext is a system call.
#include "device/emulator.hpp"

#include <sanitizer/asan_interface.h>
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <stdexcept>
#include <vector>

namespace kvcast::kernels::emulator {

namespace {

constexpr std::size_t kStack = 128 << 10;
constexpr unsigned kLanes = 32;

enum class Wait { kNone, kBlock, kWarp, kDone };

struct Copy {
  void* to;
  unsigned char bytes[16];
};

// A stack, which an earlier launch may have left: each page of new memory would cost a page fault.
class Stack {
 public:
  Stack() {
    if (spare().empty()) spare().emplace_back(new unsigned char[kStack]);
    bytes_ = std::move(spare().back());
    spare().pop_back();
  }
  // The frames on it never return, so that the address sanitizer still guards their variables.
  ~Stack() {
    ASAN_UNPOISON_MEMORY_REGION(bytes_.get(), kStack);
    spare().push_back(std::move(bytes_));
  }
  unsigned char* get() const { return bytes_.get(); }

 private:
  using Bytes = std::unique_ptr<unsigned char[]>;
  static std::vector<Bytes>& spare() {
    static thread_local std::vector<Bytes> stacks;
    return stacks;
  }
  Bytes bytes_;
};

struct Thread {
  ucontext_t start;
  jmp_buf context;
  bool started = false;
  Stack stack;
  unsigned index = 0;
  Wait wait = Wait::kNone;
  unsigned collectives = 0;
  std::uint32_t live = 0;  // lanes that took part in the last one
  std::deque<std::vector<Copy>> groups;
  std::vector<Copy> open;
  std::exception_ptr error;
};

struct Warp {
  std::uint32_t words[2][kLanes][kWords];  // two in turn: a fast lane may begin the next while others still read
};

class Block {
 public:
  Block(unsigned threads, std::size_t shared_bytes)
      : threads_(threads), warps_((threads + kLanes - 1) / kLanes), shared_(shared_bytes + 128) {
    for (Thread& t : threads_) {
      getcontext(&t.start);
      t.start.uc_stack.ss_sp = t.stack.get();
      t.start.uc_stack.ss_size = kStack;
      t.start.uc_link = nullptr;
      makecontext(&t.start, &Block::enter, 0);
    }
  }

  void run(Index block, Index grid, const std::function<void()>& body);
  void leave(Wait why) {
    now_->wait = why;
    if (_setjmp(now_->context) == 0) _longjmp(scheduler_, 1);
  }
  static void enter();

  Index block_, grid_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  Thread* now_ = nullptr;
  unsigned char* shared() {
    const std::uintptr_t p = reinterpret_cast<std::uintptr_t>(shared_.data());
    return reinterpret_cast<unsigned char*>((p + 127) / 128 * 128);
  }

 private:
  void resume(Thread& thread);
  bool advance();
  bool release();
  std::vector<unsigned char> shared_;
  jmp_buf scheduler_;
  const std::function<void()>* body_ = nullptr;
};

// Device code finds its thread by plain calls, as on the device; they look it up here.
Block*& current() {
  static thread_local Block* block = nullptr;
  return block;
}

// The first function on a thread's stack. It runs the body once for each block, and never returns.
void Block::enter() {
  Block& block = *current();
  Thread& self = *block.now_;
  while (true) {
    try {
      (*block.body_)();
    } catch (...) {
      self.error = std::current_exception();
    }
    block.leave(Wait::kDone);
  }
}

// Runs a thread until it calls leave().
void Block::resume(Thread& thread) {
  now_ = &thread;
  if (_setjmp(scheduler_) != 0) return;
  if (thread.started) _longjmp(thread.context, 1);
  thread.started = true;
  setcontext(&thread.start);
}

// Runs every runnable thread to its next barrier or its end.
bool Block::advance() {
  bool moved = false;
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    const bool descending = (block_.x + block_.y + block_.z) % 2 == 1;
    Thread& t = threads_[descending ? threads_.size() - 1 - i : i];
    if (t.wait != Wait::kNone) continue;
    resume(t);
    if (t.error) std::rethrow_exception(t.error);
    moved = true;
  }
  return moved;
}

// Opens barriers that all live threads of the block, or of a warp, have reached.
bool Block::release() {
  bool opened = false;
  const auto open = [&](std::size_t first, std::size_t last, Wait kind) {
    const auto from = threads_.begin() + static_cast<std::ptrdiff_t>(first);
    const auto to = threads_.begin() + static_cast<std::ptrdiff_t>(std::min(last, threads_.size()));
    const bool all = std::all_of(from, to, [&](const Thread& t) { return t.wait == kind || t.wait == Wait::kDone; });
    if (!all) return;
    std::uint32_t live = 0;
    for (auto t = from; kind == Wait::kWarp && t != to; ++t) live |= t->wait == kind ? 1u << (t - from) : 0;
    for (auto t = from; t != to; ++t) {
      if (t->wait != kind) continue;
      t->wait = Wait::kNone, t->live = live;
      opened = true;
    }
  };
  for (std::size_t w = 0; w < warps_.size(); ++w) open(w * kLanes, (w + 1) * kLanes, Wait::kWarp);
  open(0, threads_.size(), Wait::kBlock);
  return opened;
}

void Block::run(Index block, Index grid, const std::function<void()>& body) {
  block_ = block;
  grid_ = grid;
  body_ = &body;
  std::fill(shared_.begin(), shared_.end(), static_cast<unsigned char>(0xFF));  // NaN as half and as float
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    Thread& t = threads_[i];
    t.index = static_cast<unsigned>(i);
    t.wait = Wait::kNone;
    t.collectives = 0;
    t.groups.clear();
    t.open.clear();
  }
  while (true) {
    const bool moved = advance();
    const bool done =
        std::all_of(threads_.begin(), threads_.end(), [](const Thread& t) { return t.wait == Wait::kDone; });
    if (done) return;
    if (!release() && !moved) throw std::logic_error("threads of one block wait at different barriers");
  }
}

}  // namespace

void run(Index grid, unsigned threads, std::size_t shared_bytes, const std::function<void()>& body) {
  Block block(threads, shared_bytes);
  Block* const outer = current();
  current() = &block;
  try {
    for (unsigned z = 0; z < grid.z; ++z) {
      for (unsigned y = 0; y < grid.y; ++y) {
        for (unsigned x = 0; x < grid.x; ++x) block.run({x, y, z}, grid, body);
      }
    }
  } catch (...) {
    current() = outer;
    throw;
  }
  current() = outer;
}

Index block_index() { return current()->block_; }
Index grid_size() { return current()->grid_; }
unsigned thread_index() { return current()->now_->index; }
unsigned block_size() { return static_cast<unsigned>(current()->threads_.size()); }
unsigned char* shared() { return current()->shared(); }
void block_barrier() { current()->leave(Wait::kBlock); }

Exchange exchange(const std::uint32_t* words, int count) {
  Block& block = *current();
  Thread& self = *block.now_;
  Warp& warp = block.warps_[self.index / kLanes];
  auto& slots = warp.words[self.collectives++ % 2];
  std::memcpy(slots[self.index % kLanes], words, static_cast<std::size_t>(count) * 4);
  block.leave(Wait::kWarp);
  return {slots};
}

std::uint32_t live_lanes() { return current()->now_->live; }

void copy_async(void* to, const void* from, bool valid) {
  require_aligned(to, 16);
  Copy copy{to, {}};
  if (valid) {
    require_aligned(from, 16);
    std::memcpy(copy.bytes, from, 16);
  }
  current()->now_->open.push_back(copy);
}

void copy_commit() {
  Thread& self = *current()->now_;
  self.groups.push_back(std::move(self.open));
  self.open.clear();
}

void copy_wait(int groups_left) {
  auto& groups = current()->now_->groups;
  while (groups.size() > static_cast<std::size_t>(groups_left)) {
    for (const Copy& copy : groups.front()) std::memcpy(copy.to, copy.bytes, 16);
    groups.pop_front();
  }
}

void require_aligned(const void* p, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(p) % bytes != 0) throw std::logic_error("an access is not aligned to its width");
}

}  // namespace kvcast::kernels::emulator
