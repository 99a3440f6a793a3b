#include "grapnel/io/pickle.h"

#include <bit>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "grapnel/base/error.h"

namespace grapnel::io {

namespace {

using Kind = PtValue::Kind;
using Node = PtValue::Node;
using NodePtr = std::shared_ptr<Node>;

/// All containers that a pickle made. In the end those that are not in the result are emptied one
/// by one: their depth is the file's choice, and rings would never end by themselves.
class Arena {
 public:
  NodePtr make(Kind kind) {
    nodes_.push_back(std::make_shared<Node>());
    nodes_.back()->kind = kind;
    return nodes_.back();
  }
  NodePtr text(std::string_view text, Kind kind = Kind::text) {
    NodePtr out = make(kind);
    out->text = text;
    return out;
  }
  void keep(std::unordered_set<const Node*> used) { used_ = std::move(used); }
  ~Arena() {
    for (const NodePtr& node : nodes_) {
      if (used_.contains(node.get())) continue;
      // Whatever ends here is on the list as well, so it ends nothing else.
      node->items.clear();
      node->entries.clear();
    }
  }

 private:
  std::vector<NodePtr> nodes_;
  std::unordered_set<const Node*> used_;
};

class Machine {
 public:
  Machine(std::string_view code, const PickleCalls& calls, const std::string& source)
      : code_(code), calls_(calls), source_(source) {}
  void keep(std::unordered_set<const Node*> used) { arena_.keep(std::move(used)); }

  PtValue run() {
    while (step(byte())) {
    }
    check(marks_.empty() && stack_.size() == 1, source_, ": the pickle ends with ", stack_.size(),
          " values on its stack; it is damaged.");
    return pop();
  }

 private:
  // --- bytes ---
  [[noreturn]] void damaged(const char* what) const {
    fail(source_, ": the pickle is damaged at byte ", at_, ": ", what, ".");
  }
  std::string_view take(uint64_t count) {
    if (count > code_.size() - at_) damaged("it ends in the middle of a value");
    at_ += count;
    return code_.substr(at_ - count, count);
  }
  uint8_t byte() { return static_cast<uint8_t>(take(1)[0]); }
  template <class T>
  T number() {
    T out;
    std::memcpy(&out, take(sizeof out).data(), sizeof out);
    return out;
  }
  std::string_view line() {
    const size_t end = code_.find('\n', at_);
    if (end == code_.npos) damaged("a line does not end");
    const std::string_view out = take(end - at_);
    take(1);
    return out;
  }
  double big_endian_double() {
    return std::bit_cast<double>(__builtin_bswap64(number<uint64_t>()));
  }
  int64_t long_integer(uint64_t size) {
    const std::string_view bytes = take(size);
    if (bytes.empty()) return 0;
    if (size > 8) fail(source_, ": a whole number needs more than 64 bits.");
    uint64_t out = bytes.back() < 0 ? ~uint64_t{0} : 0;
    std::memcpy(&out, bytes.data(), bytes.size());
    return static_cast<int64_t>(out);
  }

  // --- the stack ---
  void push(PtValue value) { stack_.push_back(std::move(value)); }
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  PtValue pop() {
    if (stack_.size() <= floor()) damaged("its stack is empty");
    PtValue out = std::move(stack_.back());
    stack_.pop_back();
    return out;
  }
  const PtValue& top() const {
    if (stack_.size() <= floor()) damaged("its stack is empty");
    return stack_.back();
  }
  /// All values above the last mark.
  std::vector<PtValue> pop_mark() {
    if (marks_.empty()) damaged("a mark is missing");
    const auto begin = stack_.begin() + static_cast<ptrdiff_t>(marks_.back());
    std::vector<PtValue> out(std::make_move_iterator(begin), std::make_move_iterator(stack_.end()));
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return out;
  }
  Node& open(Kind kind, const char* what) {
    if (top().kind() != kind) damaged(what);
    return const_cast<Node&>(*top().node());
  }

  // --- values ---
  void push_tuple(std::vector<PtValue> items) {
    NodePtr out = arena_.make(Kind::tuple);
    out->items = std::move(items);
    push(out);
  }
  void push_tuple(size_t count) {
    std::vector<PtValue> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    push_tuple(std::move(items));
  }
  void append(std::vector<PtValue> values) {
    Node& list = open(Kind::list, "it adds to what is no list");
    for (PtValue& value : values) list.items.push_back(std::move(value));
  }
  void set(std::vector<PtValue> values) {
    Node& dict = open(Kind::dict, "it adds to what is no dict");
    if (values.size() % 2 != 0) damaged("a key has no value");
    for (size_t i = 0; i < values.size(); i += 2)
      dict.entries.emplace_back(std::move(values[i]), std::move(values[i + 1]));
  }
  void push_name(std::string_view module, std::string_view name) {
    const std::string text = str(module, ".", name);
    push(arena_.text(text, calls_.is_text(text) ? Kind::text : Kind::name));
  }
  void call() {
    const PtValue arguments = pop(), name = pop();
    if (name.kind() != Kind::name) damaged("it calls what is no function");
    if (arguments.kind() != Kind::tuple) damaged("it calls without a tuple");
    push(calls_.call(name.node()->text, arguments, make_));
  }
  void make_object() {
    const PtValue arguments = pop(), name = pop();
    if (name.kind() != Kind::name) damaged("it makes an object of what is no class");
    if (!name.node()->text.starts_with("__torch__.")) {
      push(calls_.call(name.node()->text, arguments, make_));
      return;
    }
    // An object of LibTorch's: its fields are data.
    NodePtr out = arena_.make(Kind::dict);
    out->is_object = true;
    push(out);
  }
  void build() {
    const PtValue state = pop();
    if (top().kind() != Kind::dict) damaged("it fills what is no object");
    auto& object = const_cast<Node&>(*top().node());
    // What PyTorch hangs on dicts, such as the versions of modules, is left out.
    if (!object.is_object) return;
    if (state.kind() != Kind::dict) damaged("the state of an object is no dict");
    object.entries.insert(object.entries.end(), state.entries().begin(), state.entries().end());
  }
  void get(uint32_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) damaged("it refers to a value that is not there");
    push(found->second);
  }

  /// False at the end.
  bool step(uint8_t op) {
    switch (op) {
      case 0x80:
        if (const int version = byte(); version < 2 || version > 5)
          fail(source_, ": has a pickle of protocol ", version, "; 2 to 5 are read.");
        break;
      case 0x95: number<uint64_t>(); break;  // a frame: its length
      case '.': return false;
      case '(': marks_.push_back(stack_.size()); break;
      case '0':
        if (!marks_.empty() && marks_.back() == stack_.size()) marks_.pop_back();
        else pop();
        break;
      case '1': pop_mark(); break;
      case '2': push(PtValue(top())); break;
      case 'N': push({}); break;
      case 0x88: push(true); break;
      case 0x89: push(false); break;
      case 'J': push(int64_t{number<int32_t>()}); break;
      case 'K': push(int64_t{byte()}); break;
      case 'M': push(int64_t{number<uint16_t>()}); break;
      case 0x8a: push(long_integer(byte())); break;
      case 0x8b: push(long_integer(number<uint32_t>())); break;
      case 'G': push(big_endian_double()); break;
      case 'X': push(arena_.text(take(number<uint32_t>()))); break;
      case 0x8c: push(arena_.text(take(byte()))); break;
      case 0x8d: push(arena_.text(take(number<uint64_t>()))); break;
      case 'T':
      case 'B': push(arena_.text(take(number<uint32_t>()), Kind::bytes)); break;
      case 'U':
      case 'C': push(arena_.text(take(byte()), Kind::bytes)); break;
      case 0x8e:
      case 0x96: push(arena_.text(take(number<uint64_t>()), Kind::bytes)); break;
      case ')': push_tuple(size_t{0}); break;
      case 0x85: push_tuple(size_t{1}); break;
      case 0x86: push_tuple(size_t{2}); break;
      case 0x87: push_tuple(size_t{3}); break;
      case 't': push_tuple(pop_mark()); break;
      case ']':
      case 0x8f: push(arena_.make(Kind::list)); break;  // a set is a list here
      case 'l': {
        NodePtr out = arena_.make(Kind::list);
        out->items = pop_mark();
        push(out);
        break;
      }
      case '}': push(arena_.make(Kind::dict)); break;
      case 'd': {
        std::vector<PtValue> values = pop_mark();
        push(arena_.make(Kind::dict));
        set(std::move(values));
        break;
      }
      case 'a': {
        std::vector<PtValue> one{pop()};
        append(std::move(one));
        break;
      }
      case 'e':
      case 0x90: append(pop_mark()); break;
      case 's': {
        std::vector<PtValue> pair(2);
        pair[1] = pop(), pair[0] = pop();
        set(std::move(pair));
        break;
      }
      case 'u': set(pop_mark()); break;
      case 'q': memo_[byte()] = top(); break;
      case 'r': memo_[number<uint32_t>()] = top(); break;
      case 0x94: memo_[static_cast<uint32_t>(memo_.size())] = top(); break;
      case 'h': get(byte()); break;
      case 'j': get(number<uint32_t>()); break;
      case 'c': {
        const std::string_view module = line();
        push_name(module, line());
        break;
      }
      case 0x93: {
        const PtValue name = pop(), module = pop();
        if (name.kind() != Kind::text || module.kind() != Kind::text)
          damaged("the name of a class is no text");
        push_name(module.text(), name.text());
        break;
      }
      case 'Q': push(calls_.persistent(pop(), make_)); break;
      case 'R': call(); break;
      case 0x81: make_object(); break;
      case 'b': build(); break;
      default:
        fail(source_, ": the pickle asks for operation ", int{op}, " at byte ", at_ - 1,
             ", which makes no data; it is not read.");
    }
    return true;
  }

  Arena arena_;  // outlives what refers to its nodes
  const PickleMaker make_ = [this](Kind kind) { return arena_.make(kind); };
  std::string_view code_;
  const PickleCalls& calls_;
  const std::string& source_;
  size_t at_ = 0;
  std::vector<PtValue> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint32_t, PtValue> memo_;
};

}  // namespace

PtValue run_pickle(std::string_view pickle, const PickleCalls& calls, const std::string& source) {
  Machine machine(pickle, calls, source);
  PtValue out = machine.run();
  machine.keep(check_pickled(out, source));
  return out;
}

}  // namespace grapnel::io
